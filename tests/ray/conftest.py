"""One cluster for all tests of a process: two nodes, on this machine, without a network."""

import logging
import os
import warnings

import pytest

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
# A process of Ray takes seconds to start, mostly to import torch, so there are as few as `predict` needs. Of two
# workers the head can have one at most: the other is on the node that a test kills.
HEAD_CPUS, NODE_CPUS = 1, 2
STORE = 80 * 2**20  # bytes for the objects of a node; Ray takes no less than 75 MiB
# A node that is killed is found to be dead within seconds, and no worker is started before there is work for it.
SYSTEM = {"health_check_period_ms": 1000, "health_check_failure_threshold": 4, "prestart_worker_first_driver": False}


@pytest.fixture(scope="session")
def cluster():
    """A running `ray.cluster_utils.Cluster`, to which this process is connected."""
    ray = pytest.importorskip("ray")
    pytest.importorskip("ray.data")
    from ray.cluster_utils import Cluster

    head = {"num_cpus": HEAD_CPUS, "object_store_memory": STORE, "include_dashboard": False, "_system_config": SYSTEM}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Ray warns of its own future defaults
        nodes = Cluster(initialize_head=True, head_node_args=head)
        try:
            nodes.add_node(num_cpus=NODE_CPUS, object_store_memory=STORE)
            ray.init(address=nodes.address, log_to_driver=False, logging_level=logging.ERROR)
            context = ray.data.DataContext.get_current()
            context.enable_progress_bars = False
            yield nodes
        finally:
            ray.shutdown()
            nodes.shutdown()
