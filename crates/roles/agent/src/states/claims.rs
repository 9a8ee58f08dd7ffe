//! Volumes of the claims that pods of this node mount. Claims are fetched one by one as pods name them: a cluster has
//! many more than a node, and a bound claim stays bound.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kube::api::Api;
use plimsoll_client::explain;
use plimsoll_client::shutdown::Shutdown;
use tokio::sync::watch;

use super::cluster_state::{Claim, ClusterState, Pod};
use super::counters::Counters;
use super::{ClusterStateCell, objects};

/// Retry interval for a claim that is not bound yet.
const AGAIN: Duration = Duration::from_secs(10);

pub struct Volumes {
    pub client: kube::Client,
    pub cluster_state: ClusterStateCell,
    pub counters: Arc<Counters>,
}

impl Volumes {
    pub async fn run(self, shutdown: Shutdown) {
        let mut changes = self.cluster_state.subscribe();
        loop {
            let cluster = changes.borrow_and_update().clone();
            let (wanted, missing) = plan(&cluster);
            let mut open = false;
            for (namespace, claim) in missing {
                match self.volume(&namespace, &claim).await {
                    Some(volume) => self.cluster_state.update(|cluster| {
                        let volumes = Arc::make_mut(&mut cluster.volumes);
                        volumes.insert((namespace, claim), volume);
                    }),
                    None => open = true,
                }
            }
            self.forget(&wanted);
            tokio::select! {
                () = shutdown.begins() => return,
                () = tokio::time::sleep(AGAIN), if open => {}
                changed = pods_changed(&mut changes, cluster.pods.as_ref()) => if !changed {
                    return;
                },
            }
        }
    }

    async fn volume(&self, namespace: &str, claim: &str) -> Option<Box<str>> {
        let claims: Api<objects::Claim> = Api::namespaced(self.client.clone(), namespace);
        match claims.get_opt(claim).await {
            Ok(found) => {
                let volume = found?.spec.volume_name;
                (!volume.is_empty()).then_some(volume)
            }
            Err(error) => {
                self.counters.volume_failures.add();
                let trouble = explain(&error);
                tracing::debug!(namespace, claim, trouble, "cannot read a volume claim");
                None
            }
        }
    }

    fn forget(&self, wanted: &[Claim]) {
        let volumes = self.cluster_state.current().volumes;
        if volumes.keys().any(|name| !wanted.contains(name)) {
            self.cluster_state.update(|cluster| {
                Arc::make_mut(&mut cluster.volumes).retain(|name, _| wanted.contains(name));
            });
        }
    }
}

/// All claims that pods name, and those of them that are not known yet.
fn plan(cluster: &ClusterState) -> (Vec<Claim>, Vec<Claim>) {
    let pods = cluster.pods.as_deref().unwrap_or_default();
    let names = pods.iter().flat_map(|pod| {
        let claims = pod.claims.iter();
        claims.map(|claim| (pod.namespace.clone(), claim.clone()))
    });
    let wanted: BTreeMap<Claim, ()> = names.map(|name| (name, ())).collect();
    let wanted: Vec<Claim> = wanted.into_keys().collect();
    let missing = wanted.iter();
    let missing = missing.filter(|name| !cluster.volumes.contains_key(*name));
    let missing = missing.cloned().collect();
    (wanted, missing)
}

/// False: nobody tells any more.
async fn pods_changed(
    changes: &mut watch::Receiver<ClusterState>,
    before: Option<&Arc<[Pod]>>,
) -> bool {
    let changed = changes.wait_for(|cluster| match (before, &cluster.pods) {
        (Some(before), Some(now)) => !Arc::ptr_eq(before, now),
        (before, now) => before.is_some() != now.is_some(),
    });
    changed.await.is_ok()
}
