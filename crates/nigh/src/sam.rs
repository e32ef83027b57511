//! Functions as other tools describe them: templates of AWS SAM and CloudFormation, and Serverless Framework's
//! `serverless.yml`, become a `Stack`, and a `Stack` becomes a SAM template. Pure.
//!
//! What Nigh does not have is left out of the stack and listed with its reason; nothing is dropped without a word.

mod events;
mod functions;
mod intrinsics;
mod properties;
mod resources;
mod serverless;
mod stack;
mod template;
#[cfg(test)]
mod tests;
mod written;
mod yaml;
mod yaml_writer;

pub(crate) use self::stack::{
    AsyncSettings, LayerRef, LeftOut, Stack, StackCode, StackFunction, StackLayer, StackSchedule,
};
pub(crate) use self::template::{Inputs, read};
pub(crate) use self::written::write;
