import pytest
from tools.docs.markdown import linked, marked, table


@pytest.mark.parametrize(
    ("text", "markdown"),
    [
        ("as --leader-elect", "as `--leader-elect`"),
        ("--warm=false starts anew", "`--warm=false` starts anew"),
        ("how many -v Ansible gets", "how many `-v` Ansible gets"),
        ("sets ANSIBLE_ROLES_PATH", "sets `ANSIBLE_ROLES_PATH`"),
        ("$KUBECONFIG, then ~/.kube/config", "`$KUBECONFIG`, then `~/.kube/config`"),
        ("the kinds of watches.yaml", "the kinds of `watches.yaml`"),
        ("a watch's markUnsafe wins", "a watch's `markUnsafe` wins"),
        ("for example :8443; 0s for never", "for example `:8443`; `0s` for never"),
        ("HTTP/1.1, TCP and YAML; warm-up", "HTTP/1.1, TCP and YAML; warm-up"),
        ("`In` is `code` already, `minReplicas` too", "`In` is `code` already, `minReplicas` too"),
    ],
)
def test_what_is_typed_becomes_code_and_nothing_else(text: str, markdown: str) -> None:
    assert marked(text) == markdown


def test_words_become_a_link_once() -> None:
    assert linked("the cluster of a cluster", "cluster", "there.md") == "the [cluster](there.md) of a cluster"


def test_a_link_of_words_that_are_gone_is_refused() -> None:
    with pytest.raises(ValueError, match=r"cannot link 'cluster' to there\.md: not found in 'the server'"):
        linked("the server", "cluster", "there.md")


def test_a_bar_in_a_cell_does_not_end_it() -> None:
    assert table(("a", "b"), [("x|y", "")]) == "| a | b |\n| --- | --- |\n| x\\|y | |"
