//! The process list as JSON: `/api/v2.x/ps`.

use plimsoll_host::proc::ps::Process;
use serde::Serialize;

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ProcessInfo {
    user: String,
    pid: u32,
    parent_pid: u32,
    start_time: String,
    percent_cpu: f32,
    percent_mem: f32,
    rss: u64,
    virtual_size: u64,
    status: String,
    running_time: String,
    cgroup_path: String,
    cmd: String,
    fd_count: usize,
    psr: u64,
}

/// `container`: whose list this is.
pub fn shape(process: Process, fd_count: usize, container: &str) -> ProcessInfo {
    ProcessInfo {
        user: process.user,
        pid: process.pid,
        parent_pid: process.ppid,
        start_time: process.start_time,
        percent_cpu: process.percent_cpu_tenths as f32 / 10.0,
        percent_mem: process.percent_mem_tenths as f32 / 10.0,
        rss: process.rss_bytes,
        virtual_size: process.virtual_bytes,
        status: process.status,
        running_time: process.running_time,
        // A container's own path goes without saying.
        cgroup_path: match container {
            "/" if process.cgroup.is_empty() => "/".to_owned(),
            "/" => process.cgroup,
            _ => String::new(),
        },
        cmd: process.command,
        fd_count,
        psr: process.processor,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rest::json;

    fn kworker() -> Process {
        Process {
            user: "root".to_owned(),
            pid: 4,
            ppid: 2,
            start_time: "21:08".to_owned(),
            percent_cpu_tenths: 3,
            percent_mem_tenths: 0,
            rss_bytes: 18_280_448,
            virtual_bytes: 49_266_688,
            status: "I<".to_owned(),
            running_time: "00:00:06".to_owned(),
            command: "kworker/R-rcu_g".to_owned(),
            processor: 1,
            cgroup: "/a".to_owned(),
        }
    }

    #[test]
    fn to_the_letter() {
        let text = json::to_vec(&shape(kworker(), 273, "/")).unwrap();
        let expected = concat!(
            r#"{"user":"root","pid":4,"parent_pid":2,"start_time":"21:08","percent_cpu":0.3,"percent_mem":0,"#,
            r#""rss":18280448,"virtual_size":49266688,"status":"I\u003c","running_time":"00:00:06","#,
            r#""cgroup_path":"/a","cmd":"kworker/R-rcu_g","fd_count":273,"psr":1}"#,
        );
        assert_eq!(String::from_utf8(text).unwrap(), expected);
        assert_eq!(shape(kworker(), 0, "/a").cgroup_path, "");
    }
}
