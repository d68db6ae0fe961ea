"""The cluster over HTTP: health, metrics, and the dashboard's live news. Nothing runs between
requests.
"""
