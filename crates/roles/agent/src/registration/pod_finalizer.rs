//! Force-deletes terminating pods of this node: no kubelet runs here to finish their deletion.

use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, PartialObjectMeta, Preconditions};
use kube::runtime::watcher;
use plimsoll_client::backoff::Backoff;
use plimsoll_client::explain;
use plimsoll_client::reflector;
use plimsoll_client::shutdown::Shutdown;
use plimsoll_waiting::Repeated;

/// Deletes terminating pods of the node until stopped.
pub async fn finalize_deleted_pods(client: kube::Client, node: String, shutdown: Shutdown) {
    let ours = watcher::Config::default().fields(&format!("spec.nodeName={node}"));
    let pods: Api<PartialObjectMeta<Pod>> = Api::all(client.clone());
    let mut events = watcher(pods, ours).boxed();
    let mut backoff = Backoff::default();
    let mut failing = Repeated::default();
    loop {
        let event = tokio::select! {
            () = shutdown.begins() => return,
            event = events.next() => event,
        };
        let outcome = match event {
            Some(Ok(watcher::Event::InitApply(pod) | watcher::Event::Apply(pod))) => {
                end(&client, &pod).await.map_err(|error| explain(&error))
            }
            // A list is asked for; it may not come.
            Some(Ok(watcher::Event::Init)) => continue,
            Some(Ok(_)) => Ok(()),
            Some(Err(error)) => Err(reflector::explain(&error)),
            None => return,
        };
        let Err(trouble) = outcome else {
            if let Some(over) = failing.well() {
                let seconds = over.lasted.as_secs();
                tracing::info!(
                    node,
                    seconds,
                    "deleting terminating pods of this node succeeds again"
                );
            }
            continue;
        };
        if let Some(said) = failing.failed() {
            let times = said.times;
            tracing::warn!(
                node,
                trouble,
                times,
                "cannot delete terminating pods of this node, retrying"
            );
        }
        tokio::select! {
            () = shutdown.begins() => return,
            () = tokio::time::sleep(backoff.next_wait()) => {}
        }
    }
}

async fn end(client: &kube::Client, pod: &PartialObjectMeta<Pod>) -> Result<(), kube::Error> {
    let meta = &pod.metadata;
    let is_over = meta.deletion_grace_period_seconds == Some(0);
    if meta.deletion_timestamp.is_none() || is_over {
        return Ok(());
    }
    let namespace = meta.namespace.as_deref().unwrap_or_default();
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let at_once = DeleteParams {
        grace_period_seconds: Some(0),
        preconditions: Some(Preconditions {
            uid: meta.uid.clone(),
            resource_version: None,
        }),
        ..DeleteParams::default()
    };
    let name = meta.name.as_deref().unwrap_or_default();
    match pods.delete(name, &at_once).await {
        // Gone already, or another of the same name.
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
        outcome => outcome.map(drop),
    }
}
