"""Says the word of the helper that lies beside it, and counts how often this module has run in its process."""

from ansible.module_utils import shared_word
from ansible.module_utils.basic import AnsibleModule


def main() -> None:
    module = AnsibleModule({}, supports_check_mode=True)
    shared_word.times = getattr(shared_word, "times", 0) + 1
    module.exit_json(word=shared_word.WORD, times=shared_word.times)


if __name__ == "__main__":
    main()
