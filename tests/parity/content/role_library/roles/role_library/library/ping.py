"""Takes the place of a module of Ansible's."""

from ansible.module_utils.basic import AnsibleModule


def main() -> None:
    AnsibleModule({}).exit_json(ping="the role's own")


if __name__ == "__main__":
    main()
