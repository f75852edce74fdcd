"""A module without support for check mode."""

from ansible.module_utils.basic import AnsibleModule


def main() -> None:
    AnsibleModule({}).exit_json(changed=True, ran="really")


if __name__ == "__main__":
    main()
