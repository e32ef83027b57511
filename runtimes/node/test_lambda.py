"""lambda.js against a Runtime API of a few lines, in a process of its own as in a sandbox."""

import os
import shutil
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "openwhisk"))

from test_launchers import NODE, RuntimeCase, skip  # noqa: E402


class Lambda(RuntimeCase):
    def setUp(self):
        if shutil.which("node") is None:
            skip(self, "there is no node")

    def call(self, files, inputs, handler="app.handler"):
        return self.run_runtime(["node", os.path.join(NODE, "lambda.js"), handler], files, inputs)

    def answered(self, code, inputs=({},), name="app.js"):
        return self.call({name: code}, list(inputs))[0]

    def failed(self, files, handler="app.handler"):
        [(kind, error)], printed = self.call(files, [{}], handler)
        self.assertEqual(kind, "error")
        self.assertIn(error["errorType"], printed)
        return error

    def test_promises_callbacks_and_plain_values_are_answers(self):
        for code, answer in [
            ("exports.handler = async e => ({ ...e, b: 'ü' });", {"a": 1, "b": "ü"}),
            ("exports.handler = (e, c, done) => setTimeout(() => done(null, e.a), 1);", 1),
            ("exports.handler = (e, c) => { c.done(null, 2); };", 2),
            ("exports.handler = (e, c) => { c.succeed(3); c.fail('late'); };", 3),
            ("exports.handler = async (e, c, done) => { done(null, 4); };", 4),
            ("exports.handler = async () => {};", None),
            # Lambda's own runtime does not answer what is returned without a promise.
            ("exports.handler = () => 5;", None),
            ("exports.handler = () => new Promise(() => {});", None),
        ]:
            self.assertEqual(self.answered(code, [{"a": 1}]), [("response", answer)], code)

    def test_a_callback_waits_for_the_event_loop_unless_it_is_told_not_to(self):
        code = """
            let late = 0;
            exports.handler = (event, context, done) => {
                context.callbackWaitsForEmptyEventLoop = event.waits;
                setTimeout(() => { late += 1; }, event.waits ? 30 : 3600000);
                done(null, late);
            };
        """
        answers = self.answered(code, [{"waits": True}, {"waits": False}, {"waits": False}])
        self.assertEqual([body for _, body in answers], [0, 1, 1])

    def test_common_and_es_modules_nested_names_and_folders_are_found(self):
        module = "export const handler = async () => import.meta.url.length > 0; export default { inner: { f: async () => 7 } };"
        for files, handler, answer in [
            ({"app.mjs": module}, "app.handler", True),
            ({"app.mjs": module}, "app.inner.f", 7),
            ({"app.js": module, "package.json": '{"type": "module"}'}, "app.handler", True),
            ({"app.cjs": "exports.a = { b: async () => __filename.endsWith('app.cjs') };"}, "app.a.b", True),
            ({"app.js": "module.exports = Object.assign({}, { f: async () => this === undefined });"}, "./app.f", False),
            ({"app.mjs": "const x = await Promise.resolve(8); export const f = async () => x;"}, "app.f", 8),
        ]:
            answers, printed = self.call(files, [{}], handler)
            self.assertEqual(answers, [("response", answer)], printed)

    def test_the_context_is_lambdas(self):
        code = """
            exports.handler = async (event, context) => ({
                id: context.awsRequestId, arn: context.invokedFunctionArn, left: context.getRemainingTimeInMillis() > 1000,
                client: context.clientContext === undefined, trace: process.env._X_AMZN_TRACE_ID, here: process.cwd().length > 1,
            });
        """
        [(_, answer)] = self.answered(code)
        self.assertEqual((answer["arn"], answer["left"], answer["client"], answer["trace"]), ("arn", True, True, ""))
        self.assertTrue(answer["id"].startswith("01900000") and answer["here"])

    def test_errors_have_lambdas_form_and_the_next_input_is_taken(self):
        code = """
            exports.handler = async event => {
                if (event.kind === 'error') throw new RangeError('no');
                if (event.kind === 'text') throw 'plain';
                if (event.kind === 'answer') { const ring = {}; ring.ring = ring; return ring; }
                return 'well';
            };
        """
        answers = self.answered(code, [{"kind": kind} for kind in ("error", "text", "answer", "none")])
        (_, error), (_, text), (_, answer), last = answers
        self.assertEqual((error["errorType"], error["errorMessage"]), ("RangeError", "no"))
        self.assertIn("app.js:3", "".join(error["trace"]))
        self.assertEqual(text, {"errorType": "string", "errorMessage": "plain", "trace": []})
        self.assertEqual(answer["errorType"], "Runtime.MarshalError")
        self.assertIn("Unable to stringify response body", answer["errorMessage"])
        self.assertEqual(last, ("response", "well"))

    def test_what_nobody_catches_is_the_invocations_error_and_ends_the_process(self):
        for code, kind in [
            ("exports.handler = (e, c, done) => setTimeout(() => { throw new TypeError('late'); }, 1);", "TypeError"),
            ("exports.handler = () => { Promise.reject(new Error('late')); };", "Runtime.UnhandledPromiseRejection"),
        ]:
            answers = self.answered(code, [{}, {}])
            self.assertEqual([(how, error["errorType"]) for how, error in answers], [("error", kind)])
            self.assertIn("late", answers[0][1]["errorMessage"])

    def test_code_that_does_not_load_says_why_before_the_first_input(self):
        for files, handler, kind, said in [
            ({}, "app.handler", "ImportModuleError", "Cannot find module 'app'"),
            ({"app.js": "require('absent')"}, "app.handler", "ImportModuleError", "Cannot find module 'absent'"),
            ({"app.mjs": "import 'absent';"}, "app.handler", "ImportModuleError", "absent"),
            ({"app.js": "exports.handler = ("}, "app.handler", "UserCodeSyntaxError", "SyntaxError"),
            ({"app.js": ""}, "app.handler", "HandlerNotFound", "app.handler is undefined or not exported"),
            ({"app.js": "exports.handler = 1"}, "app.handler", "HandlerNotFound", "is not a function"),
            ({"app.js": ""}, "handler", "MalformedHandlerName", "file.function"),
            ({"app.js": ""}, "../app.handler", "MalformedHandlerName", "outside"),
        ]:
            error = self.failed(files, handler)
            self.assertEqual(error["errorType"], f"Runtime.{kind}")
            self.assertIn(said, error["errorMessage"])
        self.assertEqual(self.failed({"app.js": "throw new EvalError('at load')"})["errorType"], "EvalError")

    def test_an_answer_that_is_streamed_is_refused_with_what_to_do(self):
        code = "exports.handler = awslambda.streamifyResponse(async (event, stream) => stream.end());"
        error = self.failed({"app.js": code})
        self.assertEqual(error["errorType"], "Runtime.InvalidStreamingOperation")
        self.assertIn("return the answer instead", error["errorMessage"])

    def test_log_lines_have_time_request_and_level(self):
        code = "console.log('loads'); exports.handler = async () => { console.warn('%s of %d', 'one', 2); };"
        _, printed = self.call({"app.js": code}, [{}])
        self.assertRegex(printed, r"(?m)^\d{4}-\S+Z\tundefined\tINFO\tloads$")
        self.assertRegex(printed, r"(?m)^\d{4}-\S+Z\t01900000-\S+\tWARN\tone of 2$")


if __name__ == "__main__":
    unittest.main()
