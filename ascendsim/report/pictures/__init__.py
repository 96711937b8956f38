"""The pictures of a report: timelines of pipes, layers of a network, measured against estimated."""
