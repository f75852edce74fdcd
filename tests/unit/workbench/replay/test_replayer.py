"""Controllers start when a run looks twice for what they do, and not before."""

from typing import cast

from rolecall.workbench.controlplane import ControlPlane
from rolecall.workbench.controlplane.components import CONTROLLERS
from rolecall.workbench.replay.replayer import PatientControllers

POD, OTHER = "/api/v1/namespaces/ns/pods/a", "/api/v1/namespaces/ns/pods/b"


class Plane:
    """A control plane that only knows which components run."""

    def __init__(self) -> None:
        self.running: list[object] = []

    def start_component(self, component: object) -> None:
        """Start one."""
        self.running.append(component)

    def stop_component(self, component: object, *, grace_seconds: float) -> None:
        """Stop one."""
        assert grace_seconds == 0
        self.running.remove(component)


async def test_controllers_start_at_the_second_look_at_an_object_after_a_change() -> None:
    plane = Plane()
    controllers = PatientControllers(cast("ControlPlane", plane))
    await controllers.before_read(POD)
    await controllers.before_read(POD)
    assert plane.running == [], "nothing has changed yet"
    await controllers.need()
    for path in (POD, OTHER):
        await controllers.before_read(path)
    assert plane.running == []
    await controllers.before_read(POD)
    assert plane.running == list(CONTROLLERS)


async def test_controllers_rest_until_the_next_record_needs_them() -> None:
    plane = Plane()
    controllers = PatientControllers(cast("ControlPlane", plane))
    await controllers.need()
    for _ in range(2):
        await controllers.before_read(POD)
    await controllers.rest()
    assert plane.running == []
    for _ in range(2):
        await controllers.before_read(POD)
    assert plane.running == []
