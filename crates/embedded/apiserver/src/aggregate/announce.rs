//! How other servers come to believe this one: by the certificate that it shows them, and by the ConfigMap that says
//! whose certificates count.

use jiff::Timestamp;
use plimsoll_serving::{KeyPairError, certified_key};
use serde_json::{Map, Value, json};

use super::Remotes;
use crate::auth::bootstrap::authentication_config;
use crate::credentials::{Credentials, FRONT_PROXY_NAME};
use crate::managed::{Reset, Tracking};
use crate::rest::track::forget_what_it_is;
use crate::served::Served;
use crate::server::Server;
use crate::store::{Expect, WriteError};
use plimsoll_golang::time::show_seconds;

/// Who set the fields that this server writes.
const MANAGER: &str = "kube-apiserver";

impl Server {
    /// To be called once, before requests.
    pub async fn announce(&self, credentials: &Credentials) -> Result<(), KeyPairError> {
        let client = &credentials.front_proxy_client;
        let key = certified_key(client.chain.as_bytes(), client.key.as_bytes())?;
        let aggregator = self.aggregator();
        // Whoever was first stays: connections may have been made with it.
        if aggregator.identity.set(key).is_ok() {
            aggregator.remotes.store(Remotes::default().into());
            self.settle_services().await;
        }
        self.publish_authentication(credentials).await;
        Ok(())
    }

    async fn publish_authentication(&self, credentials: &Credentials) {
        let (shelf, mut wanted) = authentication_config(authentication_data(credentials));
        forget_what_it_is(&mut wanted);
        let key = "kube-system/extension-apiserver-authentication";
        loop {
            let now = Timestamp::now();
            let current = self.store().get(&shelf, key);
            let old = current.as_ref().map(|current| current.value());
            let mut object = match &old {
                Some(old) => old.clone(),
                None => {
                    let mut object = wanted.clone();
                    object["metadata"]["uid"] = uuid::Uuid::new_v4().to_string().into();
                    object["metadata"]["creationTimestamp"] = show_seconds(now).into();
                    object
                }
            };
            // What others added stays.
            for (name, value) in wanted["data"].as_object().into_iter().flatten() {
                object["data"][name] = value.clone();
            }
            if old.as_ref() == Some(&object) {
                return;
            }
            let catalogue = self.catalogue();
            if let Some(served) = catalogue.find("", "v1", "configmaps") {
                note_own(served, old, &mut object, "", now);
            }
            let expect = match &current {
                Some(current) => Expect::Revision(current.revision),
                None => Expect::Absent,
            };
            let attributes = crate::served::attributes(&shelf, &object);
            let written = self
                .store()
                .put(&shelf, key, expect, &mut object, attributes)
                .await;
            if !matches!(written, Err(WriteError::Mismatch(_))) {
                return;
            }
        }
    }
}

fn authentication_data(credentials: &Credentials) -> Map<String, Value> {
    let list = |one: &str| Value::from(json!([one]).to_string());
    let data = [
        ("client-ca-file", credentials.authority.as_str().into()),
        (
            "requestheader-client-ca-file",
            credentials.front_proxy_authority.as_str().into(),
        ),
        ("requestheader-allowed-names", list(FRONT_PROXY_NAME)),
        ("requestheader-username-headers", list("X-Remote-User")),
        ("requestheader-uid-headers", list("X-Remote-Uid")),
        ("requestheader-group-headers", list("X-Remote-Group")),
        (
            "requestheader-extra-headers-prefix",
            list("X-Remote-Extra-"),
        ),
    ];
    data.map(|(key, value)| (key.to_owned(), value))
        .into_iter()
        .collect()
}

/// Notes that this server set what is new in an object.
pub(super) fn note_own(
    served: &Served,
    old: Option<Value>,
    new: &mut Value,
    subresource: &str,
    now: Timestamp,
) {
    let resource = &served.resource;
    let api_version = resource.api_version();
    let say_what_it_is = |object: &mut Value| {
        object["kind"] = resource.kind.as_str().into();
        object["apiVersion"] = api_version.as_str().into();
    };
    let old = old.map(|mut old| {
        say_what_it_is(&mut old);
        old
    });
    say_what_it_is(new);
    let (types, shape) = served.types();
    let tracking = Tracking {
        types,
        shape,
        api_version: &api_version,
        kind: &resource.kind,
        subresource,
        reset: &Reset::builtin(&resource.group, &resource.plural, subresource),
        versions: &[&api_version],
    };
    tracking.update(old.as_ref(), new, MANAGER, &show_seconds(now));
    forget_what_it_is(new);
}
