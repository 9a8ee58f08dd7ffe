//! From a service to the addresses where it is served. There is no cluster network here: requests go to endpoints, or
//! to the name of an external service.

use serde_json::Value;

use crate::kinds::Lookup;
use plimsoll_golang::strconv::quote;

const SLICES: &str = "endpointslices.discovery.k8s.io";
const SERVICE_LABEL: &str = "kubernetes.io/service-name";

/// The service that an APIService names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceRef {
    pub namespace: String,
    pub name: String,
    pub port: u16,
}

/// Somebody who serves it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    pub host: String,
    pub port: u16,
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// Why there is nobody to ask.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Nowhere {
    NoService,
    NoPort,
    NoEndpoints,
    /// None of the endpoints has the service's port, which has this name.
    NoAddresses(String),
}

impl Nowhere {
    /// The reason of an APIService's condition.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::NoService => "ServiceNotFound",
            Self::NoPort => "ServicePortError",
            Self::NoEndpoints => "EndpointsNotFound",
            Self::NoAddresses(_) => "MissingEndpoints",
        }
    }

    pub fn message(&self, service: &ServiceRef) -> String {
        let what = format!("service/{} in {}", service.name, quote(&service.namespace));
        match self {
            Self::NoService => format!("{what} is not present"),
            Self::NoPort => format!("{what} is not listening on port {}", service.port),
            Self::NoEndpoints => format!("cannot find endpointslices for {what}"),
            Self::NoAddresses(port) => format!(
                "endpointslices for {what} have no addresses with port name {}",
                quote(port)
            ),
        }
    }
}

impl ServiceRef {
    /// Of an APIService's `spec.service`.
    pub fn read(reference: &Value) -> Option<Self> {
        let text = |field: &str| reference[field].as_str().map(str::to_owned);
        let port = reference["port"].as_u64().unwrap_or(443);
        Some(Self {
            namespace: text("namespace")?,
            name: text("name")?,
            port: u16::try_from(port).ok()?,
        })
    }

    /// The name that its server's certificate has to be made out to.
    pub fn server_name(&self) -> String {
        format!("{}.{}.svc", self.name, self.namespace)
    }

    /// Everybody who serves it at the moment; at least one.
    pub fn addresses(&self, world: &dyn Lookup) -> Result<Vec<Address>, Nowhere> {
        let service = world.get("services", &self.namespace, &self.name);
        let spec = &service.ok_or(Nowhere::NoService)?["spec"];
        if spec["type"] == "ExternalName" {
            return Ok(vec![Address {
                host: spec["externalName"].as_str().unwrap_or_default().to_owned(),
                port: self.port,
            }]);
        }
        let ports = spec["ports"].as_array();
        let port = ports
            .into_iter()
            .flatten()
            .find(|port| port["port"] == self.port);
        let port_name = name_of(port.ok_or(Nowhere::NoPort)?);
        let slices: Vec<Value> = world
            .list(SLICES, &self.namespace)
            .into_iter()
            .filter(|slice| slice["metadata"]["labels"][SERVICE_LABEL] == self.name.as_str())
            .collect();
        let mut found = Vec::new();
        for slice in &slices {
            let addresses = slice["endpoints"]
                .as_array()
                .into_iter()
                .flatten()
                .filter(|endpoint| endpoint["conditions"]["ready"] != false)
                .filter_map(|endpoint| endpoint["addresses"][0].as_str());
            add(&mut found, addresses, &slice["ports"], port_name);
        }
        // Whoever still writes Endpoints has nobody here to make slices of them.
        let endpoints = world.get("endpoints", &self.namespace, &self.name);
        if slices.is_empty() && endpoints.is_none() {
            return Err(Nowhere::NoEndpoints);
        }
        let subsets = endpoints.as_ref().filter(|_| slices.is_empty());
        let subsets = subsets.and_then(|endpoints| endpoints["subsets"].as_array());
        for subset in subsets.into_iter().flatten() {
            let addresses = subset["addresses"].as_array().into_iter().flatten();
            let addresses = addresses.filter_map(|address| address["ip"].as_str());
            add(&mut found, addresses, &subset["ports"], port_name);
        }
        match found.is_empty() {
            true => Err(Nowhere::NoAddresses(port_name.to_owned())),
            false => Ok(found),
        }
    }
}

fn name_of(port: &Value) -> &str {
    port["name"].as_str().unwrap_or_default()
}

fn add<'a>(
    found: &mut Vec<Address>,
    addresses: impl Iterator<Item = &'a str>,
    ports: &Value,
    port_name: &str,
) {
    let mut ports = ports.as_array().into_iter().flatten();
    let port = ports.find(|port| name_of(port) == port_name);
    let Some(port) = port.and_then(|port| port["port"].as_u64()) else {
        return;
    };
    let Ok(port) = u16::try_from(port) else {
        return;
    };
    found.extend(addresses.map(|host| Address {
        host: host.to_owned(),
        port,
    }));
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::*;

    /// Objects by `shelf/namespace/name`.
    #[derive(Default)]
    struct World(BTreeMap<String, Value>);

    impl World {
        fn with(mut self, shelf: &str, name: &str, object: Value) -> Self {
            self.0.insert(format!("{shelf}/ns/{name}"), object);
            self
        }
    }

    impl Lookup for World {
        fn get(&self, shelf: &str, namespace: &str, name: &str) -> Option<Value> {
            self.0.get(&format!("{shelf}/{namespace}/{name}")).cloned()
        }

        fn list(&self, shelf: &str, namespace: &str) -> Vec<Value> {
            let prefix = format!("{shelf}/{namespace}/");
            let all = self.0.iter().filter(|(key, _)| key.starts_with(&prefix));
            all.map(|(_, object)| object.clone()).collect()
        }
    }

    fn service(world: World) -> World {
        let ports = json!([{"port": 80, "name": "http"}, {"port": 443, "name": "https"}]);
        world.with("services", "s", json!({"spec": {"ports": ports}}))
    }

    fn slice(of: &str, port_name: &str, endpoints: Value) -> Value {
        json!({
            "metadata": {"labels": {SERVICE_LABEL: of}},
            "endpoints": endpoints,
            "ports": [{"name": "http", "port": 1}, {"name": port_name, "port": 6443}],
        })
    }

    #[track_caller]
    fn check(world: &World, port: u16, expected: &str) {
        let wanted = ServiceRef {
            namespace: "ns".to_owned(),
            name: "s".to_owned(),
            port,
        };
        let shown = match wanted.addresses(world) {
            Ok(found) => {
                let found: Vec<String> = found.iter().map(ToString::to_string).collect();
                found.join(" ")
            }
            Err(nowhere) => format!("{}: {}", nowhere.reason(), nowhere.message(&wanted)),
        };
        assert_eq!(shown, expected);
    }

    #[test]
    fn where_a_service_is_served() {
        let ready = json!([
            {"addresses": ["10.0.0.1"]},
            {"addresses": ["10.0.0.2"], "conditions": {"ready": false}},
            {"addresses": ["fd00::3"], "conditions": {"ready": true}},
        ]);
        let world = service(World::default())
            .with(SLICES, "s-1", slice("s", "https", ready.clone()))
            .with(SLICES, "t-1", slice("t", "https", ready.clone()));
        check(&world, 443, "10.0.0.1:6443 [fd00::3]:6443");
        check(&world, 80, "10.0.0.1:1 [fd00::3]:1");

        let endpoints = json!({"subsets": [{
            "addresses": [{"ip": "10.0.0.9"}],
            "notReadyAddresses": [{"ip": "10.0.0.8"}],
            "ports": [{"name": "https", "port": 2}],
        }]});
        // Slices say all that there is to say.
        check(
            &world.with("endpoints", "s", endpoints.clone()),
            443,
            "10.0.0.1:6443 [fd00::3]:6443",
        );
        let world = service(World::default()).with("endpoints", "s", endpoints);
        check(&world, 443, "10.0.0.9:2");

        let external = json!({"spec": {"type": "ExternalName", "externalName": "localhost"}});
        let world = World::default().with("services", "s", external);
        check(&world, 8443, "localhost:8443");
    }

    #[test]
    fn why_it_is_not() {
        check(
            &World::default(),
            443,
            "ServiceNotFound: service/s in \"ns\" is not present",
        );
        let world = service(World::default());
        check(
            &world,
            8443,
            "ServicePortError: service/s in \"ns\" is not listening on port 8443",
        );
        check(
            &world,
            443,
            "EndpointsNotFound: cannot find endpointslices for service/s in \"ns\"",
        );
        let missing = "MissingEndpoints: endpointslices for service/s in \"ns\" have no addresses with port name \"https\"";
        let one = json!([{"addresses": ["10.0.0.1"]}]);
        let world = world.with(SLICES, "s-1", slice("s", "other", one));
        check(&world, 443, missing);
        let world = world.with(SLICES, "s-1", slice("s", "https", json!([])));
        check(&world, 443, missing);
    }
}
