"""Names that the API server accepts for some kind: everything that can be a segment of a path, as for ClusterRoles."""

from typing import Final

from hypothesis import strategies as st

HOSTILE_NAMES: Final = (
    *("a:b", "a&b", "a'b\"c", "a b", "a  b", " a ", "{{ x }}", "{# x #}", "a#b", "a?b"),
    *(
        "a,b",
        "a=b",
        "a;b",
        "a|b",
        "a\\b",
        "a\nb",
        "a\tb",
        "$HOME",
        "${HOME}",
        "$(id)",
        "`id`",
        "~",
        "~root",
        "*",
        "[a]",
    ),
    *(
        "-a",
        "--tags",
        "@a",
        "!a",
        "<a>",
        "(a)",
        "a+b",
        "...",
        ".a",
        "a.",
        "ä☃😀",
        "\u2028",
        "\x1b[2J",
        "A",
        "a",
        "null",
    ),
    *("env", "project", "artifacts", "inventory", "async", "latest", "hosts", "name"),
)
LONG_NAMES: Final = ("n" * 253, "☃" * 253, ":" * 253, "ä" * 127 + "b", "ä" * 127 + "c", "n" * 300)

NAMES: Final = st.one_of(
    st.sampled_from((*HOSTILE_NAMES, *LONG_NAMES)),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="/%"), min_size=1, max_size=300).filter(
        lambda name: name not in (".", "..")
    ),
)
