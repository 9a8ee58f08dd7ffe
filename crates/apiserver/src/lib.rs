//! The embedded Kubernetes API server: for `plimsoll up`, tests and simulation. In production there is the real one.

pub mod answer;
pub mod auth;
pub mod catalogue;
pub mod codec;
mod controllers;
pub mod credentials;
pub mod discovery;
pub mod embed;
pub mod field;
pub mod gojson;
pub mod golang;
pub mod hooks;
pub mod kinds;
pub mod managed;
pub mod patch;
pub mod paths;
pub mod request;
pub mod resource;
pub mod rest;
pub mod schema;
pub mod selector;
pub mod served;
pub mod server;
mod services;
pub mod status;
pub mod store;
pub mod table;
