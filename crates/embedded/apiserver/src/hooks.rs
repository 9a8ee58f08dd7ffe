//! What the server does around writes of certain kinds, because something of its own depends on them.

use jiff::Timestamp;
use serde_json::Value;

use crate::aggregate::API_SERVICES;
use crate::auth::{User, bootstrap, user_info};
use crate::custom::DEFINITIONS;
use crate::rest::Call;
use crate::rest::track::forget_what_it_is;
use crate::server::Server;
use crate::services;
use crate::status::{StatusError, Subject};
use crate::store::Expect;
use plimsoll_golang::time::show_seconds;

const CLUSTER_ROLES: &str = "clusterroles.rbac.authorization.k8s.io";
/// Namespaces that a cluster cannot be without.
const IMMORTAL: [&str; 3] = ["default", "kube-system", "kube-public"];

impl Server {
    /// What a new cluster holds, as far as it is not there yet.
    pub(crate) async fn bootstrap(&self) {
        let now = Timestamp::now();
        for (shelf, mut object) in bootstrap::objects(now) {
            forget_what_it_is(&mut object);
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            let key = match object["metadata"]["namespace"].as_str() {
                Some(namespace) => format!("{namespace}/{name}"),
                None => name.to_owned(),
            };
            if self.store().get(&shelf, &key).is_some() {
                continue;
            }
            object["metadata"]["uid"] = uuid::Uuid::new_v4().to_string().into();
            object["metadata"]["creationTimestamp"] = show_seconds(now).into();
            let attributes = crate::served::attributes(&shelf, &object);
            // It was just seen to be absent, and nobody else writes yet.
            let _ = self
                .store()
                .begin_put(&shelf, &key, Expect::Absent, &mut object, &attributes);
        }
        self.store().flush().await;
        self.aggregate_roles().await;
        self.register_builtin_services().await;
        self.settle_definitions().await;
        // There may be APIServices of definitions that are gone.
        self.settle_services().await;
    }

    /// Writes down what ClusterRoles gather of the rules of others.
    pub(crate) async fn aggregate_roles(&self) {
        for (name, rules) in self.authority().gathered_rules() {
            let Some(current) = self.store().get(CLUSTER_ROLES, &name) else {
                continue;
            };
            let mut object = current.value();
            let rules = serde_json::json!(*rules);
            if object["rules"] == rules
                || (object["rules"].is_null() && rules == serde_json::json!([]))
            {
                continue;
            }
            object["rules"] = rules;
            let attributes = current.attributes().into_owned();
            let expect = Expect::Revision(current.revision);
            // Whoever was faster has made a change that is looked at in its turn.
            let _ = self
                .store()
                .put(CLUSTER_ROLES, &name, expect, &mut object, attributes)
                .await;
        }
    }

    /// Gives an object what only the server can give, after admission and before preparation.
    pub fn complete(
        &self,
        call: &Call<'_>,
        object: &mut Value,
        old: Option<&Value>,
    ) -> Result<(), StatusError> {
        match call.served.shelf.as_ref() {
            "services" => {
                let dry_run = call.query.get("dryRun").is_some();
                services::complete(self, object, old, dry_run)
            }
            "certificatesigningrequests.certificates.k8s.io" if old.is_none() => {
                name_requester(object, call.user);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// What is noted in a new object before it is stored.
    pub fn before_create(&self, call: &Call<'_>, object: &mut Value) {
        if call.served.shelf.as_ref() == DEFINITIONS {
            crate::crd::names::prepare_create(object);
        }
    }

    /// What is noted in a changed object before it is stored.
    pub fn before_update(&self, call: &Call<'_>, new: &mut Value) {
        if call.served.shelf.as_ref() == DEFINITIONS {
            crate::crd::names::note_storage_version(new);
        }
    }

    pub fn before_delete(&self, call: &Call<'_>, object: &Value) -> Result<(), StatusError> {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        if call.served.shelf.as_ref() == "priorityclasses.scheduling.k8s.io"
            && name.starts_with("system-")
        {
            return Err(StatusError::forbidden(
                call.served.resource.as_subject(),
                name,
                "this is a system priority class and cannot be deleted",
            ));
        }
        if call.served.shelf.as_ref() == "namespaces" && IMMORTAL.contains(&name) {
            let subject = Subject {
                group: "",
                kind: "namespaces",
            };
            return Err(StatusError::forbidden(
                subject,
                name,
                "this namespace may not be deleted",
            ));
        }
        Ok(())
    }

    /// What a client who writes finds done. It is done to the end, whether the client waits for it or not; what others
    /// write is followed by [`follow`].
    pub async fn after_write(&self, call: &Call<'_>) {
        let shelf = &call.served.shelf;
        if !matches!(shelf.as_ref(), DEFINITIONS | API_SERVICES) {
            return;
        }
        let (server, shelf) = (self.clone(), shelf.clone());
        let settling = tokio::spawn(async move { server.settle(&shelf).await });
        if let Err(error) = settling.await {
            tracing::error!(%error, "what follows from a write was not done");
        }
    }

    /// Makes what is derived from the objects of a shelf, and kept, what they say.
    async fn settle(&self, shelf: &str) {
        match shelf {
            CLUSTER_ROLES => self.aggregate_roles().await,
            DEFINITIONS => self.settle_definitions().await,
            API_SERVICES => self.settle_services().await,
            _ => {}
        }
    }
}

/// What is followed here, whoever writes it.
pub(crate) const FOLLOWED: [&str; 3] = [CLUSTER_ROLES, DEFINITIONS, API_SERVICES];

/// Settles a shelf whenever something on it has changed, until the server stops.
pub(crate) async fn follow(server: Server, shelf: &'static str) {
    let stop = server.shutdown();
    // Who starts with what is there is never too late.
    while let Ok(mut subscription) = server.store().watch(shelf, "", None) {
        subscription.present.clear();
        loop {
            server.settle(shelf).await;
            let event = tokio::select! {
                () = stop.begins() => return,
                event = subscription.tail.next() => event,
            };
            if event.is_none() {
                break;
            }
            while subscription.tail.try_next().is_some() {}
        }
    }
}

/// Who asks for a certificate is who sends the request, whatever it says.
fn name_requester(request: &mut Value, user: &User) {
    let asker = user_info(user);
    let Some(spec) = request["spec"].as_object_mut() else {
        return;
    };
    for field in ["username", "uid", "groups", "extra"] {
        match asker.get(field) {
            Some(value) => spec.insert(field.to_owned(), value.clone()),
            None => spec.remove(field),
        };
    }
}
