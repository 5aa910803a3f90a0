"""Mutation testing: how many small faults, put into the package one at a time, do the tests find?"""
