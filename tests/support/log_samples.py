# ruff: noqa: E501 -- a line of a log is a line.
"""Small logs in the formats of operators' traces; the rows are made up."""

ACME = """job_id,user,node_num,gpu_num,cpu_num,type,state,submit_time,start_time,end_time,duration,queue,gpu_time
11,u1,1,8,128,Pretrain,COMPLETED,2023-03-02 00:00:02+08:00,2023-03-02 00:00:02+08:00,2023-03-02 00:05:02+08:00,300,0,2400
12,u1,1,8,128,SFT,CANCELLED,2023-03-02 00:00:12+08:00,2023-03-02 00:01:12+08:00,2023-03-02 00:03:12+08:00,120,60,960
13,u2,1,1,16,Evaluation,FAILED,2023-03-02 00:00:22+08:00,2023-03-02 00:00:22+08:00,2023-03-02 00:01:22+08:00,60,0,60
14,u2,1,0,16,Other,COMPLETED,2023-03-02 00:00:32+08:00,2023-03-02 00:00:32+08:00,2023-03-02 00:01:32+08:00,60,0,0
15,u2,1,1,16,Debug,CANCELLED,2023-03-02 00:00:42+08:00,,2023-03-02 00:01:42+08:00,0,60,0
16,u3,128,1024,16384,Pretrain,NODE_FAIL,2023-03-02 00:01:02+08:00,2023-03-02 00:01:02+08:00,2023-03-02 00:01:07+08:00,5,0,5120
"""

KALOS = """job_id,user,node_num,gpu_num,cpu_num,type,mem_per_pod_GB,shared_mem_per_pod,state,submit_time,start_time,end_time,fail_time,stop_time,duration,queue,gpu_time
a,u1,1,8,120,Other,1000,100,COMPLETED,2023-05-17 11:00:58+00:00,2023-05-17 11:01:08+00:00,2023-05-17 11:01:16+00:00,,,18,10,144
"""

SWF = """; Version: 2.2
;    MaxProcs: 64
1 105.5 3 600 16 -1 -1 16 700 -1 1 -1 2 -1 1 -1 -1 -1
2 100 0 60 4 -1 -1 -1 -1 -1 0 7 1 -1 1 -1 -1 -1
3 125 0 90 8 -1 -1 8 -1 -1 5 7 1 1 -1 -1 -1 -1
4 130 9 -1 -1 -1 -1 8 -1 -1 5 7 1 -1 1 -1 -1 -1
5 140 0 0 1 -1 -1 1 -1 -1 1 7 1 -1 1 -1 -1 -1
6 150 0 50 1 -1 -1 1 -1 -1 2 7 1 -1 1 -1 -1 -1
7 160 0 50 1 -1 -1 1 -1 -1 3 7 1 -1 1 -1 -1 -1
8 170 0 50 -1 -1 -1 -1 -1 -1 1 7 1 -1 1 -1 -1 -1
9 195 0 50 2 -1 -1 2 -1 -1 -1 7 1 -1 1 -1 -1 -1
"""

SUPERCLOUD = """id_job,id_user,state,time_submit,time_start,time_end,timelimit,partition,gres_used,tres_alloc
1,u1,3,1609459200,1609459300,1609459400,60,gpu,gpu:volta:5,"1=20,2=170000,3=18446744073709551614,4=1,5=20,1002=5"
2,u1,4,1609459210,1609459300,1609459350,60,gpu,gpu:tesla:1,"1=20,4=1,1001=1"
3,u2,6,1609459220,1609459300,1609459310,60,gpu,,"1=40,4=1,1002=2"
4,u2,3,1609459230,1609459300,1609459310,60,cpu,,"1=40,4=1"
5,u2,4,1609459240,0,1609459310,60,gpu,,"1=40,4=1,1002=2"
6,u2,3,1609459250,1609459300,1609459310,60,gpu,gpu:volta:2,"1=40,4=1"
"""

ALIBABA_2025 = """instance_sn,role,app_name,cpu_request,cpu_limit,gpu_request,gpu_limit,creation_time,scheduled_time,deletion_time
i0,HN,app_0,12,12,1,1,,,
i1,CN,app_0,12,12,0,0,,,
i2,HN,app_1,12,12,1,1,,,400
i3,HN,app_1,12,12,1,1,100,101,
i4,HN,app_1,12,12,1,1,200,200,400
i5,HN,app_1,12,12,0,0,300,300,500
"""

ALIBABA_2026 = """job_name,organization,gpu_model,cpu_request,gpu_request,worker_num,submit_time,duration,job_type
1,13,A10,20,1,1,0,2764799,HP
2,57,A100-SXM4-80GB,15,8,2,100,41060,Spot
3,57,GPU-series-1,15,1,1,200,60,Spot
"""
