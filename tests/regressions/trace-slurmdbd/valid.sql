-- MariaDB dump 10.19  Distrib 10.11.6-MariaDB, for debian-linux-gnu (x86_64)
DROP TABLE IF EXISTS `tres_table`;
CREATE TABLE `tres_table` (
  `creation_time` bigint(20) unsigned NOT NULL,
  `deleted` tinyint(4) NOT NULL DEFAULT 0,
  `id` int(11) NOT NULL AUTO_INCREMENT,
  `type` tinytext NOT NULL,
  `name` tinytext NOT NULL DEFAULT '',
  PRIMARY KEY (`id`)
) ENGINE=InnoDB;
INSERT INTO `tres_table` VALUES (1772000000,0,1,'cpu',''),(1772000000,0,1001,'gres','gpu'),(1772000000,0,1002,'gres','gpu:a100'),(1772000000,0,1003,'gres','gpumem');
CREATE TABLE `mine_assoc_table` (
  `id_assoc` int(10) unsigned NOT NULL AUTO_INCREMENT,
  `user` tinytext NOT NULL DEFAULT '',
  `acct` tinytext NOT NULL,
  PRIMARY KEY (`id_assoc`)
) ENGINE=InnoDB;
INSERT INTO `mine_assoc_table` VALUES (5,'ann','vision'),(6,'o\'neil','speech');
CREATE TABLE `mine_job_table` (
  `job_db_inx` bigint(20) unsigned NOT NULL AUTO_INCREMENT,
  `account` tinytext DEFAULT NULL,
  `id_array_job` int(10) unsigned NOT NULL DEFAULT 0,
  `id_array_task` int(10) unsigned NOT NULL DEFAULT 4294967294,
  `id_assoc` int(10) unsigned NOT NULL,
  `id_job` int(10) unsigned NOT NULL,
  `job_name` tinytext NOT NULL,
  `partition` tinytext NOT NULL,
  `state` int(10) unsigned NOT NULL,
  `timelimit` int(10) unsigned NOT NULL DEFAULT 0,
  `time_submit` bigint(20) unsigned NOT NULL DEFAULT 0,
  `time_start` bigint(20) unsigned NOT NULL DEFAULT 0,
  `time_end` bigint(20) unsigned NOT NULL DEFAULT 0,
  `tres_alloc` text NOT NULL DEFAULT '',
  PRIMARY KEY (`job_db_inx`)
) ENGINE=InnoDB;
INSERT INTO `mine_job_table` VALUES (1,'vision',0,4294967294,5,11,'a (b), c','gpu',3,60,1772355600,1772355660,1772359260,'1=8,2=64,1001=4,1002=4,1003=40'),
(2,NULL,12,3,6,13,'d','gpu',4,4294967295,1772355600,1772355700,1772355800,'1=8,1001=2'),
(3,'vision',0,4294967294,5,14,'e','gpu',0,60,1772355600,0,0,''),
(4,'vision',0,4294967294,5,15,'f','gpu',1,60,1772355600,1772358260,0,'1001=1');
