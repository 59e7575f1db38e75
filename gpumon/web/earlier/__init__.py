"""What readers of the earlier tools ask for, in the forms that they know. See docs/switching.md."""
