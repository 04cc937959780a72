"""Attention suites described: true error beside certificate, cell by cell. No verdict reads any of it.

A module with a number ORDER and a function `describe` is a part of every suite by being in this folder.
"""
