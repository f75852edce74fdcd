import gzip
from dataclasses import replace

from rolecall.runner.proxy.sessions import Exchange
from rolecall.runner.record.access import ANY, MAX_NAMES, OWN, Access, AccessSet
from tests.unit.runner.proxy.conftest import DEMO
from tests.unit.runner.record.records import CONFIG_MAPS, config_map, exchange, make_record

OTHER = "/api/v1/namespaces/other/configmaps"


def access_of(*exchanges: Exchange, names: tuple[str, ...] = ("one",)) -> AccessSet:
    found = AccessSet(DEMO, "/r")
    for name in names:
        found.add(make_record(*exchanges, name=name))
    return found


def test_requests_are_kept_with_their_tasks_and_primaries() -> None:
    found = access_of(exchange("GET", f"{CONFIG_MAPS}/a"), exchange("GET", OTHER), names=("one", "two", "three"))
    own = Access("", "configmaps", "", "get", OWN, "a")
    assert set(found.usages) == {own, Access("", "configmaps", "", "list", "other", "")}
    assert found.usages[own].tasks == {"/r/main.yml:3"}
    assert found.usages[own].primaries == {"ns/one", "ns/two"}
    assert found.exercised == {"/r/main.yml:3"}


def test_tasks_of_a_playbook_generated_for_one_run_are_not_kept() -> None:
    record = make_record()
    for task in record.tasks.values():
        task.path = "/tmp/work/ns/one/project/main.json:1"  # noqa: S108 - a place, not a file
    found = AccessSet(DEMO, "/r")
    found.add(record)
    assert found.exercised == set()


def test_patch_that_creates_needs_create_too() -> None:
    created = access_of(exchange("PATCH", f"{CONFIG_MAPS}/a", {}, config_map("1"), 201))
    changed = access_of(exchange("PATCH", f"{CONFIG_MAPS}/a", {}, config_map("1")))
    assert {each.verb for each in created.usages} == {"create", "patch"}
    assert {each.verb for each in changed.usages} == {"patch"}


def test_kinds_owned_by_a_primary_are_dependents() -> None:
    owned = config_map("1", ownerReferences=[{"uid": "uid-of-one"}])
    assert access_of(exchange("GET", f"{CONFIG_MAPS}/a", None, owned)).dependents == {("", "configmaps")}
    assert access_of(exchange("GET", f"{CONFIG_MAPS}/a", None, config_map("uid-of-one"))).dependents == set()
    whole = exchange("GET", f"{CONFIG_MAPS}/a", None, owned)
    assert access_of(replace(whole, response=gzip.compress(whole.response or b""))).dependents == {("", "configmaps")}


def test_names_beyond_the_limit_become_any() -> None:
    found = access_of(*[exchange("GET", f"{CONFIG_MAPS}/{number}") for number in range(MAX_NAMES + 10)])
    assert len(found.usages) == MAX_NAMES + 1
    assert Access("", "configmaps", "", "get", OWN, ANY) in found.usages


def test_add_returns_whether_a_run_added_anything() -> None:
    found = AccessSet(DEMO, "/r")
    assert found.add(make_record(exchange("GET", f"{CONFIG_MAPS}/a")))
    assert not found.add(make_record(exchange("GET", f"{CONFIG_MAPS}/a")))
    assert found.add(make_record(exchange("GET", f"{CONFIG_MAPS}/a", status=403)))


def test_impersonation_and_granted_roles_are_kept() -> None:
    as_eve = replace(exchange("GET", CONFIG_MAPS), impersonated=(("Impersonate-User", "eve"),))
    bindings = "/apis/rbac.authorization.k8s.io/v1/namespaces/ns/rolebindings"
    found = access_of(as_eve, exchange("POST", bindings, {"roleRef": {"name": "admin"}}))
    assert Access("", "users", "", "impersonate", "", "eve") in found.usages
    (binding,) = [usage for access, usage in found.usages.items() if access.resource == "rolebindings"]
    assert binding.details == {'{"name": "admin"}'}
