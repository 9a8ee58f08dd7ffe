use crate::framework::plugin::Plugin;
use crate::plugins::testing::Kit;

const PLUGIN: Plugin = Plugin::DynamicResources;
const POD: &str = r#"{"metadata":{"namespace":"d"},"spec":{"resourceClaims":[{"name":"r","resourceClaimName":"c"}]}}"#;
const NONE: &str = "Unresolvable: cannot allocate all claims";

fn slice(name: &str, node: &str, devices: &str) -> String {
    format!(
        r#"{{"metadata":{{"name":"{name}"}},"spec":{{"driver":"d.io","nodeName":"{node}",
            "pool":{{"name":"{node}","generation":1,"resourceSliceCount":1}},"devices":[{devices}]}}}}"#
    )
}

fn device(name: &str, model: &str) -> String {
    format!(r#"{{"name":"{name}","attributes":{{"model":{{"string":"{model}"}}}}}}"#)
}

fn claim(name: &str, requests: &str, more: &str) -> String {
    format!(
        r#"{{"metadata":{{"name":"{name}","namespace":"d","uid":"{name}"}},"spec":{{"devices":{{"requests":[{requests}]{more}}}}}}}"#
    )
}

fn request(more: &str) -> String {
    format!(r#"{{"name":"q","exactly":{{"deviceClassName":"gpu"{more}}}}}"#)
}

/// Node a has two devices of model m and one of model n; node b has none.
fn kit() -> Kit {
    let mut kit = Kit::with_nodes(&[
        r#"{"metadata":{"name":"a"}}"#,
        r#"{"metadata":{"name":"b"}}"#,
    ]);
    kit.add_device_class(r#"{"metadata":{"name":"gpu"},"spec":{"selectors":[{"cel":{"expression":"device.driver == 'd.io'"}}]}}"#);
    kit.add_slice(&slice(
        "s",
        "a",
        &[device("1", "m"), device("2", "m"), device("3", "n")].join(","),
    ));
    kit
}

#[test]
fn devices_are_where_they_are() {
    let mut kit = kit();
    kit.check(
        PLUGIN,
        POD,
        "a",
        "Unresolvable: resourceclaim.resource.k8s.io \"c\" not found",
    );
    kit.add_resource_claim(&claim("c", &request(""), ""));
    kit.check(PLUGIN, POD, "a", "fits");
    kit.check(PLUGIN, POD, "b", NONE);
    kit.add_resource_claim(&claim("c", &request(r#","count":3"#), ""));
    kit.check(PLUGIN, POD, "a", "fits");
    kit.add_resource_claim(&claim("c", &request(r#","count":4"#), ""));
    kit.check(PLUGIN, POD, "a", NONE);
    kit.add_resource_claim(&claim(
        "c",
        r#"{"name":"q","exactly":{"deviceClassName":"fpga"}}"#,
        "",
    ));
    kit.check(
        PLUGIN,
        POD,
        "a",
        "Unresolvable: request q: device class fpga does not exist",
    );
}

#[test]
fn devices_that_others_have_are_not_to_be_had() {
    let mut kit = kit();
    let other = claim("other", &request(""), "").replacen(
        '{',
        r#"{"status":{"allocation":{"devices":{"results":[{"request":"q","driver":"d.io","pool":"a","device":"3"}]}}},"#,
        1,
    );
    kit.add_resource_claim(&other);
    kit.add_resource_claim(&claim("c", &request(r#","count":3"#), ""));
    kit.check(PLUGIN, POD, "a", NONE);
    kit.add_resource_claim(&claim(
        "c",
        &request(r#","count":3,"adminAccess":true"#),
        "",
    ));
    kit.check(PLUGIN, POD, "a", "fits");
    kit.add_resource_claim(&claim("c", &request(r#","allocationMode":"All""#), ""));
    kit.check(PLUGIN, POD, "a", NONE);
}

#[test]
fn selectors_and_constraints() {
    let mut kit = kit();
    let of_model = |model: &str, count: usize| {
        request(&format!(
            r#","count":{count},"selectors":[{{"cel":{{"expression":"device.attributes['d.io'].model == '{model}'"}}}}]"#
        ))
    };
    kit.add_resource_claim(&claim("c", &of_model("m", 2), ""));
    kit.check(PLUGIN, POD, "a", "fits");
    kit.add_resource_claim(&claim("c", &of_model("n", 2), ""));
    kit.check(PLUGIN, POD, "a", NONE);
    let same = r#","constraints":[{"matchAttribute":"d.io/model"}]"#;
    kit.add_resource_claim(&claim("c", &request(r#","count":2"#), same));
    kit.check(PLUGIN, POD, "a", "fits");
    kit.add_resource_claim(&claim("c", &request(r#","count":3"#), same));
    kit.check(PLUGIN, POD, "a", NONE);
    let different = r#","constraints":[{"distinctAttribute":"d.io/model"}]"#;
    kit.add_resource_claim(&claim("c", &request(r#","count":2"#), different));
    kit.check(PLUGIN, POD, "a", "fits");
    kit.add_resource_claim(&claim("c", &request(r#","count":3"#), different));
    kit.check(PLUGIN, POD, "a", NONE);
}

#[test]
fn a_selector_that_fails_is_an_error_of_the_pod() {
    let mut kit = kit();
    let broken = request(
        r#","selectors":[{"cel":{"expression":"device.attributes['d.io'].nothing == 1"}}]"#,
    );
    kit.add_resource_claim(&claim("c", &broken, ""));
    kit.check(
        PLUGIN,
        POD,
        "a",
        "Error: claim d/c: selector #0: CEL runtime error: no such key: nothing",
    );
}

/// Costly selectors, each within what one expression may cost, would take a minute together.
#[test]
fn what_all_selectors_of_a_pod_may_do_is_bounded() {
    let mut kit = kit();
    let devices: Vec<String> = (0..100).map(|n| device(&format!("d{n}"), "m")).collect();
    kit.add_slice(&slice("many", "b", &devices.join(",")));
    let list = format!("[{}]", vec!["1"; 300].join(","));
    let costly = format!(r#"{{"cel":{{"expression":"{list}.all(x, {list}.all(y, x + y < 3))"}}}}"#);
    let selectors = vec![costly; 31].join(",");
    kit.add_resource_claim(&claim(
        "c",
        &request(&format!(
            r#","count":1,"selectors":[{selectors},{{"cel":{{"expression":"false"}}}}]"#
        )),
        "",
    ));
    kit.check(
        PLUGIN,
        POD,
        "b",
        "Error: node b: timed out trying to allocate devices",
    );
}

#[test]
fn the_first_alternative_that_works_is_taken() {
    let mut kit = kit();
    let wish = |model: &str, name: &str| {
        format!(
            r#"{{"name":"{name}","deviceClassName":"gpu","selectors":[{{"cel":{{"expression":"device.attributes['d.io'].model == '{model}'"}}}}]}}"#
        )
    };
    kit.add_slice(&slice("t", "b", &device("1", "n")));
    let choosy = format!(
        r#"{{"name":"q","firstAvailable":[{},{}]}}"#,
        wish("m", "best"),
        wish("n", "good")
    );
    kit.add_resource_claim(&claim("c", &choosy, ""));
    kit.check(PLUGIN, POD, "a", "fits");
    kit.check(PLUGIN, POD, "b", "fits");
    kit.check_scores(PLUGIN, POD, &[("a", 100), ("b", 87)]);
}

#[test]
fn tainted_devices_need_a_toleration() {
    let mut kit = kit();
    kit.add_slice(&slice(
        "s",
        "a",
        r#"{"name":"1","taints":[{"key":"k","effect":"NoSchedule"}]}"#,
    ));
    kit.add_resource_claim(&claim("c", &request(""), ""));
    kit.check(PLUGIN, POD, "a", NONE);
    kit.add_resource_claim(&claim(
        "c",
        &request(r#","tolerations":[{"key":"k","operator":"Exists"}]"#),
        "",
    ));
    kit.check(PLUGIN, POD, "a", "fits");
}

#[test]
fn incomplete_pools_are_not_used_and_stop_who_wants_all() {
    let mut kit = kit();
    kit.add_slice(
        &slice("s", "a", &device("1", "m"))
            .replace(r#""resourceSliceCount":1"#, r#""resourceSliceCount":2"#),
    );
    kit.add_resource_claim(&claim("c", &request(""), ""));
    kit.check(PLUGIN, POD, "a", NONE);
    kit.add_resource_claim(&claim("c", &request(r#","allocationMode":"All""#), ""));
    kit.check(
        PLUGIN,
        POD,
        "a",
        "Error: claim d/c, request q: asks for all devices, but resource pool d.io/a is currently being updated",
    );
}

#[test]
fn an_allocated_claim_goes_where_its_devices_are() {
    let mut kit = kit();
    let allocated = claim("c", &request(""), "").replacen(
        '{',
        r#"{"status":{"allocation":{"devices":{},"nodeSelector":{"nodeSelectorTerms":[{"matchFields":[{"key":"metadata.name","operator":"In","values":["b"]}]}]}}},"#,
        1,
    );
    kit.add_resource_claim(&allocated);
    kit.check(PLUGIN, POD, "b", "fits");
    kit.check(
        PLUGIN,
        POD,
        "a",
        "Unresolvable: resourceclaim not available on the node",
    );
}
