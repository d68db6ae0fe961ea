-- How many keys each secret has wrapped, by the secret's name.
SELECT substring(wrapped FROM 2 FOR 4), count(*) FROM sharding_subject WHERE wrapped IS NOT NULL GROUP BY 1;
