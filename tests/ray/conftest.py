"""One cluster for all tests of a process: three nodes, on this machine, without a network."""

import logging
import os
import warnings

import pytest

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
CPUS = 2  # of each node; Ray ends idle workers beyond this number, and each takes seconds to start again
STORE = 80 * 2**20  # bytes for the objects of a node; Ray takes no less than 75 MiB
# A node that is killed is found to be dead within seconds, and no worker is started before there is work for it.
SYSTEM = {"health_check_period_ms": 1000, "health_check_failure_threshold": 4, "prestart_worker_first_driver": False}


@pytest.fixture(scope="session")
def cluster():
    """A running `ray.cluster_utils.Cluster`, to which this process is connected."""
    ray = pytest.importorskip("ray")
    pytest.importorskip("ray.data")
    from ray.cluster_utils import Cluster

    node = {"num_cpus": CPUS, "object_store_memory": STORE, "include_dashboard": False}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Ray warns of its own future defaults
        nodes = Cluster(initialize_head=True, head_node_args={**node, "_system_config": SYSTEM})
        try:
            for _ in range(2):
                nodes.add_node(num_cpus=CPUS, object_store_memory=STORE)
            ray.init(address=nodes.address, log_to_driver=False, logging_level=logging.ERROR)
            ray.data.DataContext.get_current().enable_progress_bars = False
            yield nodes
        finally:
            ray.shutdown()
            nodes.shutdown()
