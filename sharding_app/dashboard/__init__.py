"""The dashboard's pages, each made of one look at the cluster: the admin shows them, a WebSocket
pushes them.
"""
