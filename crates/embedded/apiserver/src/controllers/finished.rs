//! Pods that have ended are kept for people to look at, but not any number of them.

use std::sync::Arc;
use std::time::Duration;

use super::remove;
use crate::rest::meta;
use crate::server::Server;
use crate::store::Stored;

/// As kube-controller-manager does without being told otherwise.
const KEPT: usize = 12_500;
const LOOK_EVERY: Duration = Duration::from_secs(20);

pub async fn collect(server: Server) {
    let stop = server.shutdown();
    loop {
        tokio::select! {
            () = stop.begins() => return,
            () = tokio::time::sleep(LOOK_EVERY) => {}
        }
        for pod in too_many(&server, KEPT) {
            remove(&server, "pods", &pod);
        }
    }
}

/// Of the pods that have ended, those beyond the number: evicted ones first, then the oldest.
fn too_many(server: &Server, kept: usize) -> Vec<Arc<Stored>> {
    let page = server
        .store()
        .list("pods", "", None, None, usize::MAX, has_ended);
    let ended = page.map(|page| page.items).unwrap_or_default();
    let excess = ended.len().saturating_sub(kept);
    if excess == 0 {
        return Vec::new();
    }
    let mut ended: Vec<_> = ended
        .into_iter()
        .map(|pod| {
            let object = pod.value();
            let was_evicted = object["status"]["reason"] == "Evicted";
            let made = meta(&object, "creationTimestamp").to_owned();
            ((!was_evicted, made, pod.key.clone()), pod)
        })
        .collect();
    ended.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
    ended.truncate(excess);
    ended.into_iter().map(|(_, pod)| pod).collect()
}

fn has_ended(pod: &Stored) -> bool {
    let attributes = pod.attributes();
    let phase = attributes
        .fields
        .iter()
        .find(|(name, _)| name == "status.phase");
    phase.is_some_and(|(_, phase)| matches!(phase.as_ref(), "Succeeded" | "Failed"))
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddr};

    use serde_json::{Value, json};

    use super::*;
    use crate::embed::Config;
    use crate::served;
    use crate::store::Expect;

    fn put(server: &Server, name: &str, second: u32, status: Value) {
        let mut pod = json!({
            "metadata": {"name": name, "namespace": "default", "creationTimestamp": format!("2026-01-01T00:00:{second:02}Z")},
            "status": status,
        });
        let attributes = served::attributes("pods", &pod);
        let key = format!("default/{name}");
        let store = server.store();
        let written = store.begin_put("pods", &key, Expect::Absent, &mut pod, &attributes);
        assert!(written.is_ok());
    }

    #[tokio::test]
    async fn the_oldest_go_first() {
        let config = Config {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            data_dir: None,
        };
        let plane = config.build().await.unwrap();
        let server = plane.server();
        put(server, "running", 0, json!({"phase": "Running"}));
        put(server, "pending", 1, json!({"phase": "Pending"}));
        put(server, "young", 9, json!({"phase": "Succeeded"}));
        put(server, "old", 3, json!({"phase": "Failed"}));
        put(server, "middle", 5, json!({"phase": "Succeeded"}));
        let evicted = json!({"phase": "Failed", "reason": "Evicted"});
        put(server, "evicted", 7, evicted);
        let names = |kept| -> Vec<String> {
            let pods = too_many(server, kept);
            pods.iter().map(|pod| pod.name().to_owned()).collect()
        };
        assert!(names(4).is_empty());
        assert_eq!(names(2), ["evicted", "old"]);
        assert_eq!(names(0), ["evicted", "old", "middle", "young"]);
    }
}
