-- The rights that others than the owner have on a table, and on its columns.
SELECT CASE WHEN a.grantee = 0 THEN NULL ELSE pg_get_userbyid(a.grantee) END, a.privilege_type, a.is_grantable, NULL::text
FROM pg_class c CROSS JOIN LATERAL aclexplode(c.relacl) a
WHERE c.oid = to_regclass(%(table)s) AND a.grantee <> c.relowner
UNION ALL
SELECT CASE WHEN a.grantee = 0 THEN NULL ELSE pg_get_userbyid(a.grantee) END, a.privilege_type, a.is_grantable, t.attname
FROM pg_class c
JOIN pg_attribute t ON t.attrelid = c.oid AND t.attnum > 0 AND NOT t.attisdropped
CROSS JOIN LATERAL aclexplode(t.attacl) a
WHERE c.oid = to_regclass(%(table)s) AND a.grantee <> c.relowner
ORDER BY 1, 4, 2;
