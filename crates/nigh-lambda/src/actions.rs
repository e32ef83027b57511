//! What each operation is about to do, for the check of its key's scope. Pure.

use nigh_engine::Action;
use nigh_functions::function_arn::parse_function_reference;
use nigh_terms::FunctionName;

use super::Operation;

/// The function that `operation` invokes or reads; none for other operations, and for a text that names no function.
pub(super) fn function_of(operation: Operation<'_>) -> Option<FunctionName> {
    match operation {
        Operation::Invoke(name)
        | Operation::Get(name)
        | Operation::GetConfiguration(name)
        | Operation::ListVersions(name)
        | Operation::ListAliases(name)
        | Operation::GetPolicy(name)
        | Operation::GetConcurrency(name)
        | Operation::GetEventConfig(name)
        | Operation::ListEventConfigs(name)
        | Operation::GetUrl(name)
        | Operation::ListUrls(name)
        | Operation::ListTags(name) => parse_function_reference(name).ok(),
        _ => None,
    }
}

/// What `operation` is about to do; `function` is what `function_of` found.
pub(super) fn action<'a>(operation: Operation<'_>, function: Option<&'a FunctionName>) -> Action<'a> {
    let function = function.map_or("", FunctionName::as_str);
    match operation {
        Operation::Invoke(_) => Action::Invoke(function),
        Operation::Get(_)
        | Operation::GetConfiguration(_)
        | Operation::ListVersions(_)
        | Operation::ListAliases(_)
        | Operation::GetPolicy(_)
        | Operation::GetConcurrency(_)
        | Operation::GetEventConfig(_)
        | Operation::ListEventConfigs(_)
        | Operation::GetUrl(_)
        | Operation::ListUrls(_)
        | Operation::ListTags(_) => Action::ReadFunction(function),
        Operation::List
        | Operation::ListLayers
        | Operation::ListLayerVersions(_)
        | Operation::GetLayer(..)
        | Operation::GetAccountSettings => Action::Read,
        Operation::States(_) | Operation::Scheduler(_) if only_reads(operation.name()) => Action::Read,
        Operation::Create
        | Operation::UpdateCode(_)
        | Operation::UpdateConfiguration(_)
        | Operation::Delete(_)
        | Operation::PutConcurrency(_)
        | Operation::DeleteConcurrency(_)
        | Operation::PutEventConfig(_)
        | Operation::UpdateEventConfig(_)
        | Operation::DeleteEventConfig(_)
        | Operation::CreateUrl(_)
        | Operation::UpdateUrl(_)
        | Operation::DeleteUrl(_)
        | Operation::PublishLayer(_)
        | Operation::DeleteLayer(..)
        | Operation::States(_)
        | Operation::Scheduler(_) => Action::Change,
    }
}

/// Whether an operation of this name changes nothing and starts nothing: AWS's names say so.
fn only_reads(name: &str) -> bool {
    ["Describe", "Get", "List", "Validate"].iter().any(|verb| name.starts_with(verb))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{SchedulerOperation, StatesOperation};

    #[test]
    fn a_function_is_known_by_its_name_whatever_form_the_path_has() {
        for text in ["blur", "blur:$LATEST", "arn%3Aaws%3Alambda%3Aus-east-1%3A000000000000%3Afunction%3Ablur"] {
            let operation = Operation::Invoke(text);
            let function = function_of(operation);
            assert_eq!(action(operation, function.as_ref()), Action::Invoke("blur"), "{text}");
        }
        let nonsense = Operation::Get("a/b c");
        assert_eq!(action(nonsense, function_of(nonsense).as_ref()), Action::ReadFunction(""));
    }

    #[test]
    fn what_starts_or_changes_something_is_no_read() {
        let of = |operation| action(operation, None);
        assert_eq!(of(Operation::List), Action::Read);
        assert_eq!(of(Operation::States(StatesOperation::DescribeExecution)), Action::Read);
        assert_eq!(of(Operation::States(StatesOperation::StartExecution)), Action::Change);
        assert_eq!(of(Operation::Scheduler(SchedulerOperation::List)), Action::Read);
        assert_eq!(of(Operation::Scheduler(SchedulerOperation::Create("s"))), Action::Change);
        assert_eq!(of(Operation::UpdateCode("f")), Action::Change);
    }
}
