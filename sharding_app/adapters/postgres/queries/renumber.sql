SELECT number, wanted, resized, revision, shard, epoch, step
FROM sharding_renumber_v1(%(term)s, %(type)s, %(revision)s, %(upto)s, %(least_epoch)s, %(at_most)s);
