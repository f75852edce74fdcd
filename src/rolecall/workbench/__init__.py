"""The workbench: the tools that people use during development. No operator image contains it."""
