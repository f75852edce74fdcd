from tests.unit.proxy.conftest import api_server, proxy, start_run

__all__ = ["api_server", "proxy", "start_run"]
