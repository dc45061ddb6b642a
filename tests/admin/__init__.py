"""Tests of the admin endpoint: its API, its page and its terminal."""
