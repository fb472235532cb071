"""Many pictures: sources of any size, exported shard by shard, each input accounted for, resumed anywhere."""
