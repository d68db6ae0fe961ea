"""The way from any thread of the site to the cluster: the portal, and the gateway that refs lead
to.
"""
