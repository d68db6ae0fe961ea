-- The line of commits that this server goes on with (`Lineage`).
SELECT server.system || '/' || server.timeline FROM (SELECT @server@) AS server (started, timeline, system);
