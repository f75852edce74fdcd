from tests.unit.runner.proxy.conftest import api_server, leadership, proxy, start_run

__all__ = ["api_server", "leadership", "proxy", "start_run"]
