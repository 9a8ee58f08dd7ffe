//! The administrator, who asks all the time while tenants attack.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use serde_json::json;

use crate::admin;
use crate::client::Server;

const PAUSE: Duration = Duration::from_millis(100);

pub struct Probe {
    stop: Arc<AtomicBool>,
    worst: JoinHandle<Result<Duration>>,
}

impl Probe {
    /// Reads health, reads, and writes; each has to be answered within the bound.
    pub fn start(server: &Server, bound: Duration) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (server, stopped) = (server.clone(), Arc::clone(&stop));
        let worst = thread::spawn(move || {
            let mut worst = Duration::ZERO;
            while !stopped.load(Ordering::Relaxed) {
                let started = Instant::now();
                ask(&server).context("the administrator was not served")?;
                let took = started.elapsed();
                ensure!(
                    took <= bound,
                    "the administrator waited {took:?}, longer than {bound:?}"
                );
                worst = worst.max(took);
                thread::sleep(PAUSE);
            }
            Ok(worst)
        });
        Self { stop, worst }
    }

    /// The longest that it took to be answered.
    pub fn stop(self) -> Result<Duration> {
        self.stop.store(true, Ordering::Relaxed);
        self.worst
            .join()
            .map_err(|_| anyhow!("the probe panicked"))?
    }
}

fn ask(server: &Server) -> Result<()> {
    for path in ["/readyz", "/livez"] {
        let (status, answer) = admin::send(server, "GET", path, "", &serde_json::Value::Null)?;
        ensure!(status == 200, "{path}: {status} {answer}");
    }
    admin::get(server, "/api/v1/namespaces/default")?;
    let lease = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
    admin::create(
        server,
        lease,
        &json!({"metadata": {"name": "probe"}, "spec": {"holderIdentity": "administrator"}}),
    )?;
    let (status, answer) = admin::send(
        server,
        "DELETE",
        &format!("{lease}/probe"),
        "",
        &serde_json::Value::Null,
    )?;
    ensure!(
        status == 200,
        "the lease was not deleted: {status} {answer}"
    );
    Ok(())
}
