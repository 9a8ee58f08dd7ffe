//! What a write takes of its namespace's quotas is counted in them before it happens.

use serde_json::Value;

use super::track::forget_what_it_is;
use super::write::RETRIES;
use super::{Call, meta};
use crate::kinds::{Lookup, quota};
use crate::managed::{Reset, Tracking};
use crate::resource::builtin_type;
use crate::schema::{Shape, Types};
use crate::server::Server;
use crate::status::StatusError;
use crate::store::{Expect, Stored, WriteError};
use plimsoll_golang::time::show_seconds;

const QUOTAS: &str = "resourcequotas";
/// Who is said to have counted.
const MANAGER: &str = "kube-apiserver";

impl Call<'_> {
    /// Refuses what there is no room for, and counts the rest.
    pub async fn charge_quotas(
        &self,
        object: &Value,
        old: Option<&Value>,
        dry_run: bool,
    ) -> Result<(), StatusError> {
        if !self.served.resource.namespaced() {
            return Ok(());
        }
        let resource = self.served.resource.qualified();
        let mut counted: Vec<String> = Vec::new();
        for _ in 0..RETRIES {
            let mut charged = quota::charge(&resource, object, old, &Counting(self.server))?;
            charged.retain(|quota| !counted.iter().any(|name| name == meta(quota, "name")));
            if dry_run || charged.is_empty() {
                return Ok(());
            }
            let mut overtaken = false;
            for quota in charged {
                let name = meta(&quota, "name").to_owned();
                if !self.write_quota(quota, &name).await? {
                    // Somebody else was faster: what is left is computed anew.
                    overtaken = true;
                    break;
                }
                counted.push(name);
            }
            if !overtaken {
                return Ok(());
            }
        }
        Err(StatusError::conflict(
            crate::status::Subject {
                group: "",
                kind: QUOTAS,
            },
            "",
            "the object has been modified; please apply your changes to the latest version and try again",
        ))
    }

    /// False: somebody else was faster.
    async fn write_quota(&self, mut quota: Value, name: &str) -> Result<bool, StatusError> {
        let key = format!("{}/{name}", self.path.namespace);
        let Some(current) = latest(self.server, &key) else {
            return Ok(true);
        };
        if meta(&quota, "resourceVersion") != current.revision.to_string() {
            return Ok(false);
        }
        note_manager(&current.value(), &mut quota, &show_seconds(self.now));
        let (expect, attributes) = (
            Expect::Revision(current.revision),
            current.attributes().into_owned(),
        );
        let store = self.server.store();
        match store
            .put(QUOTAS, &key, expect, &mut quota, attributes)
            .await
        {
            Ok(_) => Ok(true),
            Err(WriteError::Mismatch(_)) => Ok(false),
            Err(WriteError::NotKept) => Err(self.not_kept(QUOTAS, name)),
        }
    }
}

/// One who counts builds on what others have counted just now: who would wait until that is on disk would let only one
/// object through with each flush.
struct Counting<'a>(&'a Server);

impl Lookup for Counting<'_> {
    fn get(&self, resource: &str, namespace: &str, name: &str) -> Option<Value> {
        self.0.get(resource, namespace, name)
    }

    fn list(&self, resource: &str, namespace: &str) -> Vec<Value> {
        if resource != QUOTAS {
            return self.0.list(resource, namespace);
        }
        let prefix = format!("{namespace}/");
        let latest = self.0.store().latest(QUOTAS, &prefix);
        latest.iter().map(|quota| quota.value()).collect()
    }
}

fn latest(server: &Server, key: &str) -> Option<std::sync::Arc<Stored>> {
    let found = server.store().latest(QUOTAS, key);
    found.into_iter().find(|quota| quota.key.as_ref() == key)
}

fn note_manager(old: &Value, quota: &mut Value, now: &str) {
    let Some(id) = builtin_type("", "v1", "ResourceQuota") else {
        return;
    };
    let named = |object: &Value| {
        let mut object = object.clone();
        object["kind"] = "ResourceQuota".into();
        object["apiVersion"] = "v1".into();
        object
    };
    let (live, mut new) = (named(old), named(quota));
    let tracking = Tracking {
        types: Types::builtin(),
        shape: &Shape::Struct(id),
        api_version: "v1",
        kind: "ResourceQuota",
        subresource: "status",
        reset: &Reset::builtin("", QUOTAS, "status"),
        versions: &["v1"],
    };
    tracking.update(Some(&live), &mut new, MANAGER, now);
    forget_what_it_is(&mut new);
    *quota = new;
}
