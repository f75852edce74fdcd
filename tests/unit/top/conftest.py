from tests.unit.page.conftest import shown

__all__ = ["shown"]
