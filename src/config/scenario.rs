//! The shape of scenario files: which keys stand where.

use serde::Deserialize;

use super::reader::{Field, Named, OneOrMany, Scalar};

/// A scenario.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Scenario {
    pub title: Field<Scalar>,
    pub config: Field<OneOrMany<Scalar>>,
    pub start: Field<Scalar>,
    pub endpoints: Field<Named<Scalar>>,
    pub hosts: Field<Named<OneOrMany<Scalar>>>,
    pub vantages: Field<Named<Scalar>>,
    pub steps: Field<Vec<Field<Step>>>,
    pub r#for: Field<Scalar>,
}

/// What happens at one moment of it.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Step {
    pub at: Field<Scalar>,
    pub after: Field<Scalar>,
    pub endpoints: Field<Named<Scalar>>,
    pub hosts: Field<Named<OneOrMany<Scalar>>>,
    pub vantages: Field<Named<Scalar>>,
    pub drain: Field<OneOrMany<Scalar>>,
    pub undrain: Field<OneOrMany<Scalar>>,
    pub disable: Field<OneOrMany<Scalar>>,
    pub enable: Field<OneOrMany<Scalar>>,
    pub r#override: Field<Named<Scalar>>,
    pub failback: Field<OneOrMany<Scalar>>,
    pub reload: Field<OneOrMany<Scalar>>,
    pub restart: Field<Scalar>,
    pub expect: Field<Named<OneOrMany<Scalar>>>,
}
