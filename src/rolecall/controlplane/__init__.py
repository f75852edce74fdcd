"""The embedded control plane: etcd, the Kubernetes components and simulated nodes on loopback, without Docker."""
