"""The smallest program that compares resnet34 with its ONNX file, leaf module by leaf module.

The arguments are a photo and a file that ``torch.onnx.export(dynamo=True)`` wrote. The metadata of
a node names the module from which it was exported.
"""

import ast
import sys
from collections import defaultdict

import numpy as np
import onnx
import onnxruntime
import torch
from PIL import Image
from torchvision.models import ResNet34_Weights, resnet34

torch.manual_seed(0)
model = resnet34(weights=None).eval()
pixels = ResNet34_Weights.DEFAULT.transforms()(Image.open(sys.argv[1]).convert("RGB"))
pixels = pixels.unsqueeze(0)
seen = defaultdict(list)
for path, module in model.named_modules():
    if not [*module.children()]:
        module.register_forward_hook(
            lambda _module, _inputs, output, path=path: seen[path].append(output.clone().numpy())
        )
with torch.inference_mode():
    model(pixels)

file = onnx.load(sys.argv[2])
names = defaultdict(list)
for node in file.graph.node:
    for each in node.metadata_props:
        if each.key == "pkg.torch.onnx.name_scopes":
            names[ast.literal_eval(each.value)[-2]].append(node.output[0])
pairs = [
    (f"{path}#{number}", name, value)
    for path, values in seen.items()
    for number, (name, value) in enumerate(zip(names[path], values, strict=False))
]
known = {each.name for each in file.graph.output}
file.graph.output.extend(
    onnx.ValueInfoProto(name=name) for _, name, _ in pairs if name not in known
)
session = onnxruntime.InferenceSession(file.SerializeToString())
feeds = {session.get_inputs()[0].name: pixels.numpy()}
others = session.run([name for _, name, _ in pairs], feeds)
for (call, _, value), other in zip(pairs, others, strict=True):
    print(call, np.linalg.norm(other - value) / np.linalg.norm(value))
