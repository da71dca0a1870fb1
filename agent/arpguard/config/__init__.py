"""The configuration: `model` is what may be set, `files` reads it from YAML, by the `sections` that it has to have.

`reading` is what readers are made with, and `values` has those that annotations are read by, too.
"""
