//! Conversion by a webhook. Nobody is asked here: what needs it fails, as it does on a real server that cannot reach the
//! webhook. To relabel an object instead would show clients wrong data.

use serde_json::Value;

use crate::aggregate::resolve::{Nowhere, ServiceRef};
use crate::kinds::Lookup;
use plimsoll_golang::strconv::quote;

/// What a webhook that is not called is said to fail with.
const NOT_CALLED: &str = "this server calls no conversion webhooks";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Webhook {
    url: String,
    service: Option<ServiceRef>,
}

impl Webhook {
    /// Of a definition's `spec.conversion`; `None`: versions differ in their schemas only.
    pub fn read(conversion: &Value) -> Option<Self> {
        if conversion["strategy"] != "Webhook" {
            return None;
        }
        let client = &conversion["webhook"]["clientConfig"];
        let service = ServiceRef::read(&client["service"]);
        let url = match &service {
            Some(service) => format!(
                "https://{}:{}{}",
                service.server_name(),
                service.port,
                client["service"]["path"].as_str().unwrap_or_default()
            ),
            None => client["url"].as_str().unwrap_or_default().to_owned(),
        };
        Some(Self { url, service })
    }

    /// The error of a real server. `kind`: of what was to be converted, `example.com/v1, Kind=Tool`.
    pub fn failure(&self, kind: &str, world: &dyn Lookup) -> String {
        format!(
            "conversion webhook for {kind} failed: Post {}: {}",
            quote(&format!("{}?timeout=30s", self.url)),
            self.why(world)
        )
    }

    fn why(&self, world: &dyn Lookup) -> String {
        let Some(service) = &self.service else {
            return NOT_CALLED.to_owned();
        };
        match service.addresses(world) {
            Err(Nowhere::NoService) => format!("service {} not found", quote(&service.name)),
            Err(Nowhere::NoEndpoints | Nowhere::NoAddresses(_)) => {
                format!(
                    "no endpoints available for service {}",
                    quote(&service.name)
                )
            }
            Err(Nowhere::NoPort) => format!(
                "no service port {} found for service {}",
                service.port,
                quote(&service.name)
            ),
            Ok(_) => NOT_CALLED.to_owned(),
        }
    }
}

/// What is said to whoever writes a definition with a webhook that is going to be needed.
pub fn warning(definition: &Value) -> Option<String> {
    let spec = &definition["spec"];
    let several = spec["versions"].as_array().is_some_and(|all| all.len() > 1);
    (several && spec["conversion"]["strategy"] == "Webhook").then(|| {
        format!(
            "spec.conversion.strategy: {NOT_CALLED}; objects can only be read and written in the version in which they are stored"
        )
    })
}
