"""The OLM bundle of a project, in the format registry+v1, which OLM v0 and v1 install."""
