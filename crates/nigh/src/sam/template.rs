//! Reads a template: its parameters, conditions and globals, then each resource. Pure.

use std::collections::{BTreeMap, BTreeSet};

use nigh_terms::{ACCOUNT, BucketName, FunctionName};
use serde_json::{Map, Value};
use thiserror::Error;

use super::functions::over_globals;
use super::intrinsics::{ResourceName, Scope, scalar_text};
use super::resources;
use super::serverless;
use super::stack::{LeftOut, Stack};
use super::yaml::{self, YamlError};

/// The names by which a template calls its functions.
pub(super) const FUNCTION_TYPES: [&str; 2] = ["AWS::Serverless::Function", "AWS::Lambda::Function"];
/// The same for layers.
pub(super) const LAYER_TYPES: [&str; 2] = ["AWS::Serverless::LayerVersion", "AWS::Lambda::LayerVersion"];
pub(super) const BUCKET_TYPE: &str = "AWS::S3::Bucket";
/// What SAM's own transforms do, `read` does.
const KNOWN_TRANSFORMS: [&str; 2] = ["AWS::Serverless-2016-10-31", "AWS::LanguageExtensions"];

/// What a template is read with.
#[derive(Clone, Debug, Default)]
pub(crate) struct Inputs {
    /// Values of parameters, and of resources that Nigh does not have.
    pub(crate) parameters: BTreeMap<String, String>,
    /// The region of ARNs.
    pub(crate) region: String,
    /// The environment, for Serverless Framework's `${env:NAME}`.
    pub(crate) environment: BTreeMap<String, String>,
}

/// Why a template cannot be read.
#[derive(Debug, PartialEq, Eq, Error)]
pub(crate) enum TemplateError {
    #[error(transparent)]
    Yaml(#[from] YamlError),
    #[error("it is no JSON: {0}")]
    Json(String),
    #[error(
        "it has neither Resources, as templates of SAM and CloudFormation have, nor functions, as a serverless.yml has"
    )]
    NoTemplate,
    #[error("{0}")]
    Serverless(String),
    #[error("--parameter {name}: the template has no parameter or resource of this name{}", hint(.known))]
    UnknownParameter { name: String, known: Vec<String> },
    #[error("--parameter {name}={value}: the template allows {}", .allowed.join(", "))]
    NotAllowed { name: String, value: String, allowed: Vec<String> },
    #[error("two functions of the template are called {0}; give them other names")]
    SameName(FunctionName),
}

fn hint(known: &[String]) -> String {
    if known.is_empty() { String::new() } else { format!("; its parameters are {}", known.join(", ")) }
}

/// The stack that the text of a template describes.
///
/// # Errors
/// If it is no template, or a parameter is not what the template takes.
pub(crate) fn read(text: &str, inputs: &Inputs) -> Result<Stack, TemplateError> {
    let document: Value = if text.trim_start().starts_with('{') {
        serde_json::from_str(text).map_err(|error| TemplateError::Json(error.to_string()))?
    } else {
        yaml::parse(text)?
    };
    match &document {
        Value::Object(entries) if entries.contains_key("Resources") => Template::new(entries, inputs)?.stack(),
        Value::Object(entries) if entries.contains_key("functions") && entries.contains_key("provider") => {
            let (template, left_out) = serverless::template(&document, inputs).map_err(TemplateError::Serverless)?;
            // Its options are no parameters of the template that it becomes.
            let inputs = Inputs { region: inputs.region.clone(), ..Inputs::default() };
            let mut stack = Template::new(&template, &inputs)?.stack()?;
            stack.left_out.extend(left_out);
            stack.left_out.sort();
            Ok(stack)
        }
        _ => Err(TemplateError::NoTemplate),
    }
}

/// A template whose names are known.
pub(super) struct Template<'a> {
    pub(super) scope: Scope,
    /// The resources whose conditions hold, with their types and properties.
    pub(super) resources: BTreeMap<&'a str, Resource>,
    left_out: Vec<LeftOut>,
}

/// A resource.
#[derive(Clone, Debug)]
pub(super) struct Resource {
    pub(super) kind: String,
    /// Its properties over the globals of its kind.
    pub(super) properties: Map<String, Value>,
}

fn section(document: &Map<String, Value>, name: &str) -> Map<String, Value> {
    document.get(name).and_then(Value::as_object).cloned().unwrap_or_default()
}

impl<'a> Template<'a> {
    fn new(document: &'a Map<String, Value>, inputs: &Inputs) -> Result<Self, TemplateError> {
        let scope = Scope {
            mappings: section(document, "Mappings"),
            conditions: section(document, "Conditions"),
            ..Scope::default()
        };
        let mut template = Self { scope, resources: BTreeMap::new(), left_out: Vec::new() };
        let declared = section(document, "Parameters");
        let named: BTreeSet<&str> = document
            .get("Resources")
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
            .map(|(name, _)| name.as_str())
            .collect();
        template.take_parameters(&declared, &named, inputs)?;
        template.take_resources(document);
        template.name_resources(&inputs.region);
        template.pass_over(document);
        Ok(template)
    }

    /// Lists the sections of the document that have no effect here.
    fn pass_over(&mut self, document: &Map<String, Value>) {
        let transforms = match document.get("Transform") {
            Some(Value::Array(all)) => all.as_slice(),
            Some(one) => std::slice::from_ref(one),
            None => &[],
        };
        let macros = transforms.iter().filter(|one| !one.as_str().is_some_and(|name| KNOWN_TRANSFORMS.contains(&name)));
        self.left_out.extend(macros.map(|one| LeftOut {
            is_missed: true,
            what: "Transform".to_owned(),
            why: format!("the macro {one} is not run"),
        }));
        if document.contains_key("Outputs") {
            let why = "`nigh functions show` prints URLs and ARNs".to_owned();
            self.left_out.push(LeftOut { is_missed: false, what: "Outputs".to_owned(), why });
        }
    }

    fn take_parameters(
        &mut self,
        declared: &Map<String, Value>,
        resources: &BTreeSet<&str>,
        inputs: &Inputs,
    ) -> Result<(), TemplateError> {
        for (name, value) in &inputs.parameters {
            let resource = name.split('.').next().unwrap_or_default();
            if !declared.contains_key(name) && !resources.contains(resource) {
                let known = declared.keys().cloned().collect();
                return Err(TemplateError::UnknownParameter { name: name.clone(), known });
            }
            self.scope.values.insert(name.clone(), value.as_str().into());
        }
        for (name, parameter) in declared {
            let kind = parameter.get("Type").and_then(Value::as_str).unwrap_or("String");
            let given = inputs.parameters.get(name).cloned();
            if let Some(value) = &given {
                check_allowed(name, value, parameter)?;
            }
            let default = parameter.get("Default").filter(|_| !kind.starts_with("AWS::SSM::")).and_then(scalar_text);
            match given.or(default) {
                Some(value) if kind == "CommaDelimitedList" || kind.starts_with("List<") => {
                    let items = value.split(',').map(|item| Value::from(item.trim()));
                    self.scope.values.insert(name.clone(), items.collect());
                }
                Some(value) => drop(self.scope.values.insert(name.clone(), value.into())),
                None => {
                    let why = format!("the parameter {name} has no value; give it by --parameter {name}=VALUE");
                    self.scope.unknown.insert(name.clone(), why);
                }
            }
        }
        for (name, value) in [
            ("AWS::Region", inputs.region.as_str()),
            ("AWS::AccountId", ACCOUNT),
            ("AWS::Partition", "aws"),
            ("AWS::URLSuffix", "amazonaws.com"),
            ("AWS::StackName", "nigh"),
        ] {
            self.scope.values.insert(name.to_owned(), value.into());
        }
        Ok(())
    }

    /// Keeps the resources whose conditions hold.
    fn take_resources(&mut self, document: &'a Map<String, Value>) {
        let globals = section(document, "Globals");
        let all = document.get("Resources").and_then(Value::as_object);
        for (logical, resource) in all.into_iter().flatten() {
            let kind = resource.get("Type").and_then(Value::as_str).unwrap_or_default().to_owned();
            let holds = resource.get("Condition").and_then(Value::as_str).map(|name| self.scope.condition(name));
            match holds {
                None | Some(Ok(true)) => {}
                Some(Ok(false)) => {
                    let why = format!("{logical} is not made, as its condition does not hold");
                    self.scope.unknown.insert(logical.clone(), why);
                    continue;
                }
                Some(Err(why)) => {
                    self.leave_out(logical, why.to_string());
                    continue;
                }
            }
            let own = section(resource.as_object().unwrap_or(&Map::new()), "Properties");
            let properties = match kind.strip_prefix("AWS::Serverless::") {
                Some(kind) => over_globals(&section(&globals, kind), own),
                None => own,
            };
            self.resources.insert(logical.as_str(), Resource { kind, properties });
        }
    }

    fn leave_out(&mut self, logical: &str, why: String) {
        self.scope.unknown.insert(logical.to_owned(), why.clone());
        self.left_out.push(LeftOut { is_missed: true, what: logical.to_owned(), why });
    }

    /// Finds out what each resource is called here, so that others can refer to it.
    fn name_resources(&mut self, region: &str) {
        let mut wrong = Vec::new();
        for (logical, Resource { kind, properties }) in &self.resources {
            // The user's word counts.
            let is_given = self.scope.values.contains_key(*logical);
            let named = |property: &str| match properties.get(property) {
                Some(value) => self.scope.text(value).map_err(|why| why.to_string()),
                None => Ok((*logical).to_owned()),
            };
            if FUNCTION_TYPES.contains(&kind.as_str()) {
                let checked =
                    named("FunctionName").and_then(|name| FunctionName::new(&name).map_err(|why| why.to_string()));
                match checked {
                    Ok(name) => {
                        let arn = format!("arn:aws:lambda:{region}:{ACCOUNT}:function:{name}");
                        let named = ResourceName { name: name.to_string(), arn };
                        self.scope.resources.insert((*logical).to_owned(), named);
                    }
                    Err(why) => wrong.push(((*logical).to_owned(), format!("its name: {why}"))),
                }
            } else if LAYER_TYPES.contains(&kind.as_str()) {
                self.scope.layers.insert((*logical).to_owned());
                let why = format!("{logical} is a layer, which only Layers of a function name");
                self.scope.unknown.insert((*logical).to_owned(), why);
            } else if kind == BUCKET_TYPE {
                let name =
                    if properties.contains_key("BucketName") { named("BucketName") } else { Ok(bucket_name(logical)) };
                let checked = name.and_then(|name| BucketName::new(&name).map_err(|why| why.to_string()));
                match checked {
                    Ok(name) => {
                        let named = ResourceName { name: name.to_string(), arn: format!("arn:aws:s3:::{name}") };
                        self.scope.resources.insert((*logical).to_owned(), named);
                    }
                    Err(why) => wrong.push(((*logical).to_owned(), format!("its name: {why}"))),
                }
            } else if !is_given {
                let why = format!(
                    "{logical} is of type {kind}, which Nigh does not have; say what it is by --parameter {logical}=VALUE"
                );
                self.scope.unknown.insert((*logical).to_owned(), why);
            }
        }
        for (logical, why) in wrong {
            self.resources.remove(logical.as_str());
            self.leave_out(&logical, why);
        }
    }

    /// The stack.
    fn stack(mut self) -> Result<Stack, TemplateError> {
        let mut stack = resources::stack(&self);
        stack.left_out.append(&mut self.left_out);
        stack.left_out.sort();
        stack.left_out.dedup();
        stack.functions.sort_by(|one, other| one.name.cmp(&other.name));
        stack.buckets.sort();
        stack.buckets.dedup();
        let same = stack.functions.windows(2).find(|pair| pair[0].name == pair[1].name);
        match same {
            Some(pair) => Err(TemplateError::SameName(pair[0].name.clone())),
            None => Ok(stack),
        }
    }
}

fn check_allowed(name: &str, value: &str, parameter: &Value) -> Result<(), TemplateError> {
    let allowed = parameter.get("AllowedValues").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let allowed: Vec<String> = allowed.iter().filter_map(scalar_text).collect();
    if allowed.is_empty() || allowed.iter().any(|one| one == value) {
        return Ok(());
    }
    Err(TemplateError::NotAllowed { name: name.to_owned(), value: value.to_owned(), allowed })
}

/// A bucket's name from its name in the template, which has letters and digits.
fn bucket_name(logical: &str) -> String {
    let mut name: String =
        logical.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect();
    if name.len() < 3 {
        name.push_str("-bucket");
    }
    name.truncate(63);
    name
}
