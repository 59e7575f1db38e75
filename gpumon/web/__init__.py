"""The web face: pages, text and JSON, rendered once per revision."""
