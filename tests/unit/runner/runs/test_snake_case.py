import pytest
from hypothesis import given
from hypothesis import strategies as st

from rolecall.runner.runs.variables import snake_case, snake_case_keys

TABLE = """
size size
serviceAccount service_account
ThisShouldHaveUnderscores _this_should_have_underscores
JSONData _json_data
jsonData json_data
parseJSON parse_json
sizeK8sBuckets size_k8s_buckets
k8s_var k8s_var
db2_init db2_init
pg1_repo_path pg1_repo_path
v1beta1 v1beta1
abc11def abc11def
a1b2 a_1_b2
x1y2z3 x_1_y2z3
tls1v2 tls_1_v2
maxCPU2Limit max_cpu2_limit
ipv4Addr ipv4_addr
IPv4 ip_v4
clusterIP cluster_ip
clusterIPs cluster_ips
egressIPsegress egress_ips_egress
IPsegress _ips_egress
URLegressIPEgressHTTP url_egress_ip_egress_http
URLsegressIPsEgressHTTPs _urls_egress_ips_egress_https
HTTPURL http__url
URLHTTP url__http
HTTPServer http_server
HTTPSServer http_s_server
enableHTTPS enable_http_s
userIDs user_i_ds
ID _id
IDs _i_ds
IP __ip
URL __url
IPs __ips
PVCSize _pvc_size
ZIPCode _z_ip_code
DESCRIPTION _descr_ip_tion
aB ab
UPPER_CASE _upper_case
config-storage config_storage
my.dotted.key my.dotted.key
app.kubernetes.io/name app.kubernetes.io/name
trailing_ trailing_
two__under two__under
"""


@pytest.mark.parametrize(("key", "expected"), [line.split() for line in TABLE.strip().splitlines()])
def test_keys_become_what_the_go_runner_makes_of_them(key: str, expected: str) -> None:
    assert snake_case(key) == expected


def test_a_blank_separates_words() -> None:
    assert snake_case("with space") == "with_space"


@pytest.mark.parametrize("key", ["", " ", "   "])
def test_a_key_without_characters_stays_as_it_is(key: str) -> None:
    assert snake_case(key) == key


@given(st.text())
def test_no_key_raises(key: str) -> None:
    assert isinstance(snake_case(key), str)


@given(st.recursive(st.none() | st.integers(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_values_keep_their_shape(value: object) -> None:
    converted = snake_case_keys(value)
    assert type(converted) is type(value)


def test_keys_are_converted_at_every_depth() -> None:
    assert snake_case_keys({"nodeSelector": [{"tierName": {"aKey": "camelCase"}}]}) == {
        "node_selector": [{"tier_name": {"a_key": "camelCase"}}]
    }


def test_of_two_keys_with_the_same_result_the_alphabetically_last_wins() -> None:
    assert snake_case_keys({"foo_bar": 1, "fooBar": 2}) == {"foo_bar": 1}
    assert snake_case_keys({"fooBar": 2, "foo_bar": 1}) == {"foo_bar": 1}
