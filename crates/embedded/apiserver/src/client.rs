//! Clients in the server's own process: no socket, no TLS, no credentials.

use kube::client::Body;
use tower::util::MapRequest;

use crate::auth::User;
use crate::embed::Running;
use crate::server::{Server, Trusted};

impl Server {
    /// A client whose requests are this user's. Whoever holds it is trusted: nobody asks what the user may do.
    pub fn client(&self, user: User) -> kube::Client {
        let service = MapRequest::new(self.clone(), move |mut request: http::Request<Body>| {
            request.extensions_mut().insert(Trusted(user.clone()));
            request
        });
        kube::Client::new(service, "default")
    }
}

impl Running {
    /// A client that may do everything, for the roles that run beside the server.
    pub fn client(&self) -> kube::Client {
        self.server().client(User::master("plimsoll"))
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddr};
    use std::time::Duration;

    use futures::{StreamExt, TryStreamExt};
    use kube::api::{Api, DynamicObject, PostParams, WatchEvent, WatchParams};
    use kube::core::ApiResource;
    use serde_json::json;

    use crate::embed::Config;

    #[tokio::test]
    async fn writes_and_watches_without_a_socket() {
        let config = Config {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            data_dir: None,
        };
        let running = config.build().await.unwrap().spawn();
        let kind = ApiResource {
            group: String::new(),
            version: "v1".to_owned(),
            api_version: "v1".to_owned(),
            kind: "ConfigMap".to_owned(),
            plural: "configmaps".to_owned(),
        };
        let maps: Api<DynamicObject> = Api::default_namespaced_with(running.client(), &kind);
        let watch = WatchParams::default().fields("metadata.name=one");
        let mut events = maps.watch(&watch, "0").await.unwrap().boxed();
        let wanted = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one"}, "data": {"a": "b"}});
        let wanted = serde_json::from_value(wanted).unwrap();
        maps.create(&PostParams::default(), &wanted).await.unwrap();
        let seen = tokio::time::timeout(Duration::from_secs(60), async {
            loop {
                if let Some(WatchEvent::Added(map)) = events.try_next().await.unwrap() {
                    return map;
                }
            }
        });
        assert_eq!(seen.await.unwrap().data["data"]["a"], "b");
        drop(events);
        running.drain(Duration::from_secs(5)).await;
    }
}
