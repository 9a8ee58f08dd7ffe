//! Rights: roles without measure, and grants that must end with the object that gave them.

use std::time::Duration;

use anyhow::{Result, ensure};
use fastrand::Rng;
use plimsoll_test_support::poll;
use serde_json::{Value, json};

use super::class::{JSON, Shot, Tenant};
use super::made_up::{extreme, pick};
use super::victim::{self, Victim};
use crate::admin;
use crate::client::{Request, Server};

const GONE_WITHIN: Duration = Duration::from_secs(60);

/// Roles that multiply, by somebody who may write roles; and questions about rights.
pub fn shot(random: &mut Rng, number: u64) -> Shot {
    let mut words = |many: &[usize]| -> Vec<String> {
        let count = pick(random, many);
        (0..count).map(|index| format!("w{index}")).collect()
    };
    let (groups, resources, verbs) = (
        words(&[1, 40, 400]),
        words(&[1, 60, 400]),
        words(&[1, 30, 400]),
    );
    let rule =
        json!({"apiGroups": groups, "resources": resources, "verbs": verbs, "resourceNames": []});
    let rules = vec![rule; pick(random, &[1, 2, 20])];
    let rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/$ns";
    let reviews = "/apis/authorization.k8s.io/v1";
    let (path, body) = match random.u8(..6) {
        0..3 => (
            format!("{rbac}/roles"),
            json!({"metadata": {"name": format!("t-{number}")}, "rules": rules}),
        ),
        3 => (
            format!("{rbac}/rolebindings"),
            json!({"metadata": {"name": format!("t-{number}")},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": pick(random, &["Role", "ClusterRole"]), "name": pick(random, &["cluster-admin", "view", "t-1"])},
                "subjects": vec![json!({"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "u"}); pick(random, &[1, 5_000])]}),
        ),
        4 => (
            format!("{reviews}/selfsubjectrulesreviews"),
            json!({"spec": {"namespace": pick(random, &["$ns", "default", ""])}}),
        ),
        _ => (
            format!("{reviews}/selfsubjectaccessreviews"),
            json!({"spec": {"resourceAttributes": {"namespace": extreme(random), "verb": extreme(random), "resource": extreme(random)}}}),
        ),
    };
    let mut shot = Shot::new("POST", path, JSON, body.to_string().into_bytes());
    shot.tenant = Tenant::Admin;
    shot
}

/// A namespace with its administrator is deleted and made again: the new one is nobody's. The same for roles that are
/// taken from an aggregate, and for bindings whose owner goes.
pub fn outlive(victim: &Victim, seed: u64, shots: u64) -> Result<String> {
    for round in 0..shots {
        let name = format!("let-{seed}-{round}");
        namespace_made_again(&victim.server, &name)?;
        binding_goes_with_its_owner(&victim.server, &name)?;
        part_of_an_aggregate_goes(&victim.server, &name)?;
    }
    Ok(format!("{shots} rounds"))
}

fn namespace_made_again(server: &Server, name: &str) -> Result<()> {
    let namespaces = "/api/v1/namespaces";
    let it = format!("{namespaces}/{name}");
    let tenants = format!("/api/v1/namespaces/{}/serviceaccounts", victim::NAMESPACE);
    admin::create(server, &tenants, &json!({"metadata": {"name": name}}))?;
    let token = victim::token_of(server, victim::NAMESPACE, name)?;
    let secrets = format!("{it}/secrets");
    admin::create(server, namespaces, &json!({"metadata": {"name": name}}))?;
    let bindings = format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{name}/rolebindings");
    admin::create(server, &bindings, &binding(name, "admin", &json!([])))?;
    ensure!(
        status_as(server, &token, &secrets)? == 200,
        "the grant does not hold"
    );
    delete(server, &it)?;
    poll::until("the namespace goes", GONE_WITHIN, || {
        let (status, _) = admin::send(server, "GET", &it, "", &Value::Null)?;
        Ok((status == 404).then_some(()))
    })?;
    admin::create(server, namespaces, &json!({"metadata": {"name": name}}))?;
    let status = status_as(server, &token, &secrets)?;
    ensure!(
        status == 403,
        "who had the namespace before it was deleted is answered {status}"
    );
    Ok(())
}

fn binding_goes_with_its_owner(server: &Server, name: &str) -> Result<()> {
    let it = format!("/api/v1/namespaces/{name}");
    let token = victim::token_of(server, victim::NAMESPACE, name)?;
    let maps = format!("{it}/configmaps");
    admin::create(server, &maps, &json!({"metadata": {"name": "owner"}}))?;
    let owner = admin::get(server, &format!("{maps}/owner"))?;
    let owners = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]}]);
    let bindings = format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{name}/rolebindings");
    admin::create(server, &bindings, &binding(name, "view", &owners))?;
    ensure!(
        status_as(server, &token, &maps)? == 200,
        "the grant does not hold"
    );
    delete(server, &format!("{maps}/owner"))?;
    poll::until("the binding goes", GONE_WITHIN, || {
        let (status, _) = admin::send(
            server,
            "GET",
            &format!("{bindings}/{name}"),
            "",
            &Value::Null,
        )?;
        Ok((status == 404).then_some(()))
    })?;
    let status = status_as(server, &token, &maps)?;
    ensure!(
        status == 403,
        "whose binding was collected is answered {status}"
    );
    Ok(())
}

fn part_of_an_aggregate_goes(server: &Server, name: &str) -> Result<()> {
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let token = victim::token_of(server, victim::NAMESPACE, name)?;
    let maps = format!("/api/v1/namespaces/{name}/configmaps");
    let label = json!({(format!("aggregate-{name}")): "yes"});
    let whole = json!({"metadata": {"name": format!("whole-{name}")}, "rules": [],
        "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": label}]}});
    let part = json!({"metadata": {"name": format!("part-{name}"), "labels": label},
        "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}]});
    admin::create(server, &format!("{rbac}/clusterroles"), &whole)?;
    admin::create(server, &format!("{rbac}/clusterroles"), &part)?;
    let bindings = format!("{rbac}/namespaces/{name}/rolebindings");
    admin::create(
        server,
        &bindings,
        &binding(name, &format!("whole-{name}"), &json!([])),
    )?;
    poll::until("the aggregate has its part", GONE_WITHIN, || {
        Ok((status_as(server, &token, &maps)? == 200).then_some(()))
    })?;
    delete(server, &format!("{rbac}/clusterroles/part-{name}"))?;
    poll::until("the aggregate loses its part", GONE_WITHIN, || {
        Ok((status_as(server, &token, &maps)? == 403).then_some(()))
    })?;
    delete(server, &format!("{rbac}/clusterroles/whole-{name}"))
}

fn binding(account: &str, role: &str, owners: &Value) -> Value {
    json!({
        "metadata": {"name": account, "ownerReferences": owners},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": victim::NAMESPACE}],
    })
}

fn delete(server: &Server, path: &str) -> Result<()> {
    let (status, answer) = admin::send(server, "DELETE", path, "", &Value::Null)?;
    ensure!(status == 200, "DELETE {path}: {status} {answer}");
    Ok(())
}

fn status_as(server: &Server, token: &str, path: &str) -> Result<u16> {
    let request = Request {
        method: "GET".to_owned(),
        path: path.to_owned(),
        headers: vec![("Authorization".to_owned(), format!("Bearer {token}"))],
        body: None,
    };
    let exchange = server.send(&request)?;
    let status = exchange.status;
    exchange.body()?;
    Ok(status)
}
