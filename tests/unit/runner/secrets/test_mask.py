import base64
import json

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from rolecall.runner.proxy.request_info import parse
from rolecall.runner.record.reader import to_line
from rolecall.runner.secrets.mask import CUT_MARK, MIN_ANYWHERE, Mask
from rolecall.runner.secrets.values import mask_body, mask_copies

SECRETS = parse("GET", "/api/v1/namespaces/ns/secrets")
CHARACTERS = st.characters(exclude_categories=["Cs"])
TEXT = st.text(CHARACTERS, max_size=40)
SECRET = st.text(CHARACTERS, min_size=MIN_ANYWHERE + 2, max_size=40)


def encoded(value: str) -> str:
    return base64.b64encode(value.encode()).decode()


@given(SECRET, TEXT, TEXT)
@example('a "quoted" <é & あ>\n\\ 😀', "x", "")
@example("'''''''''", "", "'")
def test_value_is_found_in_each_spelling_and_keeps_its_length(value: str, before: str, after: str) -> None:
    whole = f"{before}{value}{after}"
    # Next to another quote, a value that starts or ends with one is in the spelling of YAML.
    assume("'" not in value or value.replace("'", "''") not in whole)
    line = {
        "plain": whole,
        "json": json.dumps({"a": whole}),
        "go": json.dumps({"a": whole}, ensure_ascii=False).replace("<", "\\u003c"),
        "python": repr(value),
        "twice": json.dumps(json.dumps(whole)),
        "base64": encoded(whole),
        "again": encoded(encoded(value)),
    }
    mask = Mask()
    placeholder = mask.add(value)
    assume(placeholder not in whole and value not in placeholder)
    masked = mask_copies(mask, line)
    assert len(placeholder) == len(value)
    assert len(placeholder.encode()) == len(value.encode())
    assert value not in masked["plain"]
    assert len(masked["plain"]) == len(whole)
    spellings = (value, json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1])
    assert [each for each in spellings if each in masked["json"] or each in masked["go"]] == []
    assert not any(json.dumps(each)[1:-1] in masked["twice"] for each in spellings)
    assert value not in mask_copies(mask, line)["plain"]
    assert repr(value) != masked["python"]
    assert value not in base64.b64decode(masked["base64"]).decode(errors="replace")
    assert masked["again"] == encoded(encoded(placeholder))


def test_placeholder_of_one_character_is_not_masked_again() -> None:
    for _ in range(200):  # one placeholder in sixty is the value itself, and its base64 is that of the value then
        mask = Mask()
        placeholder = mask_body(mask, {"kind": "Secret", "data": {"a": encoded("1")}}, SECRETS, is_hidden=False)
        masked = mask_copies(mask, placeholder)
        assert len(base64.b64decode(masked["data"]["a"])) == 1


def test_short_value_is_found_in_base64_as_a_whole_text() -> None:
    mask = Mask()
    secret = mask_body(mask, {"kind": "Secret", "data": {"a": encoded("abc")}}, SECRETS, is_hidden=False)
    assert mask_copies(mask, {"copied": encoded("abc"), "plain": "abc"}) == {
        "copied": secret["data"]["a"],
        "plain": base64.b64decode(secret["data"]["a"]).decode(),
    }
    assert secret["data"]["a"] != encoded("abc")


@pytest.mark.parametrize("value", [b"correct horse", b"\xff\xfe\xfd\xfc\xfb\xfa\xf9\xf8"])
def test_start_of_a_value_in_base64_is_removed_from_a_cut_text(value: bytes) -> None:
    mask = Mask()
    text = base64.b64encode(value).decode()
    mask_body(mask, {"kind": "Secret", "data": {"a": text}}, SECRETS, is_hidden=False)
    assert mask.without_cut_value(f"the data is {text[:9]}{CUT_MARK}") == f"the data is {CUT_MARK}"


@given(st.binary(min_size=8, max_size=64))
def test_binary_values_are_found_in_base64(value: bytes) -> None:
    mask = Mask()
    placeholder = mask.add_bytes(value)
    text = base64.b64encode(b"ab" + value + b"c").decode()
    assert value not in base64.b64decode(mask_copies(mask, {"a": text})["a"])
    assert len(placeholder) == len(value)


def test_longer_value_is_replaced_before_a_value_within_it() -> None:
    mask = Mask()
    inner, outer = mask.add("password"), mask.add("my-password-is-long")
    assert mask_copies(mask, {"a": "my-password-is-long", "b": "the password"}) == {
        "a": outer,
        "b": f"the {inner}",
    }


def test_line_of_a_long_value_that_is_also_a_value_is_found_in_each_spelling() -> None:
    mask = Mask()
    mask.add("\n".join(f"planted-line-{number}" for number in range(100)))
    mask.add("planted-line-7")
    text = to_line(mask_copies(mask, {"a": encoded("planted-line-7"), "b": "planted-line-8"}))
    assert encoded("planted-line-7") not in text
    assert "planted" not in text


def test_short_value_is_replaced_as_a_whole_text_and_not_as_a_key() -> None:
    mask = Mask()
    pin = mask.add("1234")
    assert mask_copies(mask, {"a": "1234", "b": "12345", "1234": ["1234"]}) == {
        "a": pin,
        "b": "12345",
        "1234": [pin],
    }


def test_lines_of_a_value_and_strings_in_json_are_values_too() -> None:
    mask = Mask()
    mask.add("user: somebody\npassword: hunter2-hunter2\n")
    mask.add('{"auths": {"registry": {"password": "deep-inside"}}}')
    text = to_line(mask_copies(mask, {"a": "  password: hunter2-hunter2", "b": "deep-inside"}))
    assert "hunter2" not in text
    assert "deep-inside" not in text


@pytest.mark.parametrize("value", ["default", "true", "kube-system", "ab"])
def test_harmless_words_are_not_masked(value: str) -> None:
    mask = Mask()
    mask.add(value)
    assert mask_copies(mask, {"a": value}) == {"a": value}


def test_start_of_a_value_is_removed_from_a_cut_text() -> None:
    mask = Mask()
    mask.add("planted-secret")
    assert mask.without_cut_value(f"failed with planted-se{CUT_MARK}") == f"failed with {CUT_MARK}"
    assert mask.without_cut_value(f"nothing of it{CUT_MARK}") == f"nothing of it{CUT_MARK}"
    assert mask.without_cut_value("ends in planted-se") == "ends in planted-se"


def test_redactor_replaces_each_value_with_the_same_word() -> None:
    mask = Mask()
    mask.add("correct horse")
    mask.add("abc")
    hide = mask.redactor("(hidden)")
    assert hide("u:correct horse@h, correct+horse") == "u:(hidden)@h, (hidden)"
    assert hide(base64.b64encode(b"correct horse").decode()) == "(hidden)"
    assert (hide("abc"), hide("abcd")) == ("(hidden)", "abcd")
